-- Which seeds have not learned the training range: their mean TVD over its shown lengths is $most or more. One row a board,
-- entry and task that has any. Parameters as in models.sql, without $metric.

with models as (
    select
        board,
        task_version,
        protocol,
        entry || case weights when 'raw' then '' else '@' || weights end as entry,
        task,
        seed,
        length,
        any_value(value) as value
    from chosen('tvd', $name, $protocol)
    where in_training_range
        and length > 0
    group by all
),

trained as (
    select board, task_version, protocol, max(length) as train_length
    from models
    group by all
),

means as (
    select board, task_version, protocol, entry, task, seed, avg(value) as value
    from models
    join trained using (board, task_version, protocol)
    where (length & (length - 1)) = 0 or length = train_length
    group by all
)

select board, task_version, protocol, entry, task, list_sort(list(seed)) as seeds
from means
where value is null or round(value, 12) >= $most
group by all
order by all
