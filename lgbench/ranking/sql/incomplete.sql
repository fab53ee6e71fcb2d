-- Entries whose seeds lack tasks of a family, and so are no part of the family's board. Parameters as in models.sql.

with chosen as (
    select distinct board, task_version, protocol, entry, seed, task
    from chosen($metric, $name, $protocol)
),

boards as (
    select board, task_version, protocol, count(distinct task) as tasks
    from chosen
    group by all
)

select
    c.board,
    c.task_version,
    c.protocol,
    c.entry,
    c.seed,
    count(*) as present,
    b.tasks
from chosen as c
join boards as b using (board, task_version, protocol)
group by all
having count(*) < b.tasks
order by all
