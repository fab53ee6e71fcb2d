-- The rows that boards are made from, under the family or task that they count for. Parameters as in models.sql, under
-- names that no column has.

create macro chosen(wanted_metric, wanted_name, wanted_protocol) as table
select
    case when wanted_name is null or family = wanted_name then family else task end as board,
    task_version,
    protocol,
    entry,
    weights,
    task,
    seed,
    length,
    value,
    in_training_range,
    diverged_step
from results
where metric = wanted_metric
    and length is not null
    and (wanted_name is null or family = wanted_name or task = wanted_name)
    and (
        wanted_protocol is null
        or protocol = wanted_protocol
        or split_part(protocol, '/', 1) = wanted_protocol and protocol not like '% %'
    )
