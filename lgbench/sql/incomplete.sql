-- Entries whose seeds lack tasks of a family, and so are no part of the family's board. Parameters as in board.sql.

with chosen as (
    select distinct family, task_version, protocol, entry, seed, task
    from results
    where length is not null
        and metric = $metric
        and ($name is null or family = $name)
        and ($protocol is null or protocol = $protocol or split_part(protocol, '/', 1) = $protocol and protocol not like '% %')
),

families as (
    select family, task_version, protocol, count(distinct task) as tasks
    from chosen
    group by all
)

select
    c.family,
    c.task_version,
    c.protocol,
    c.entry,
    c.seed,
    count(*) as present,
    f.tasks
from chosen as c
join families as f using (family, task_version, protocol)
group by all
having count(*) < f.tasks
order by all
