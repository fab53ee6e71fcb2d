-- The rows of values.sql at the points of a setting, with the number of the protocol without the setting as `base`. The context-free baseline
-- has a row at each point of its task. `several`: whether some entry has several points on the task.
--
-- Tables: `ran`, the rows of ran.sql with base and point, null for runs without the setting; `measured`, the rows of values.sql.
with placed as (
    select
        task_version,
        protocol,
        entry,
        seed,
        task,
        any_value(base) as base,
        -- one, unless folders are mixed in which tuning chose other rates
        min(point) as point
    from ran
    where point is not null
    group by all
),

tasks as (
    select distinct task_version, protocol, task, base, point
    from placed
),

swept as (
    select m.*, p.base, p.point
    from measured as m
    join placed as p using (task_version, protocol, entry, seed, task)
    union all by name
    select m.*, t.base, t.point
    from measured as m
    join tasks as t using (task_version, protocol, task)
    where m.entry is null
),

several as (
    select board, task_version, base, metric_version, task
    from swept
    where entry is not null
    group by board, task_version, base, metric_version, task, entry
    having count(distinct point) > 1
)

select
    *,
    (board, task_version, base, metric_version, task) in (from several) as several
from swept
-- Of duplicates the last row counts.
order by board, task_version, base, metric_version, point, protocol
