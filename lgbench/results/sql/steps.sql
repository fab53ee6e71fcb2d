-- The values of one metric while models train and at the end: one row a board, entry, seed, task, length and step, however many
-- files hold it. Only lengths that were measured before the end. The chance level has no entry and no seed.
--
-- Parameters as in values.sql.

with chosen as (
    select
        * exclude (points, point, earlier, diverged),
        point.length as length,
        point.step as step,
        point.value as value
    from (
        select *, board_of(family, task, $name, $apart) as board, unnest(points) as point
        from scores
        where metric = $metric
            and layer is null
            and head is null
            and list_contains($protocols, protocol)
            and belongs(family, task, $name)
            and (earlier or entry is null)
    )
    where point.length is not null
),

before as (
    select distinct board, task_version, protocol, metric_version, length
    from chosen
    where step < last_step
)

select
    board,
    task_version,
    protocol,
    metric_version,
    entry,
    seed,
    task,
    length,
    step,
    -- the same in all files, unless something is wrong with one of them
    median(value) as value
from chosen
join before using (board, task_version, protocol, metric_version, length)
group by all
order by board, task_version, protocol, metric_version
