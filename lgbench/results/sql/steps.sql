-- The values of one metric while models train and at the end: one row a board, entry, seed, task, length and step, however many
-- files hold it. Only lengths that were measured before the end. The context-free baseline has no entry and no seed.
--
-- Parameters as in values.sql.

with measured as (
    select *, board_of(family, task, $name, $apart) as board
    from scores
    where metric = $metric
        and layer is null
        and head is null
        and list_contains($protocols, protocol)
        and belongs(family, task, $name)
),

-- Models without a test before the end have no curve.
tested_earlier as (
    select distinct run_id, weights, metric_version
    from measured
    where step < last_step
),

chosen as (
    select *
    from measured
    where entry is null
        or (run_id, weights, metric_version) in (from tested_earlier)
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
