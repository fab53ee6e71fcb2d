-- Seeds of which something is missing on a board of one metric. `tasks` counts the tasks of the board, `present` those that the
-- seed has a run on, and `complete` those where the run has the metric. Parameters as in values.sql.

with chosen as (
    select *, board_of(family, task, $name, $apart) as board
    from measured
    where list_contains($protocols, protocol)
        and belongs(family, task, $name)
),

tasks as (
    select distinct board, task_version, protocol, metric_version, task
    from chosen
    where metric = $metric
),

counts as (
    select board, task_version, protocol, metric_version, count(*) as tasks
    from tasks
    group by all
),

seeds as (
    select
        c.board,
        c.task_version,
        c.protocol,
        t.metric_version,
        c.entry,
        c.seed,
        count(distinct c.task) as present,
        count(distinct c.task) filter (c.metric = $metric and c.metric_version = t.metric_version) as complete
    from chosen as c
    join tasks as t using (board, task_version, protocol, task)
    group by all
)

select s.board, s.task_version, s.protocol, s.metric_version, s.entry, s.seed, s.present, c.tasks
from seeds as s
join counts as c using (board, task_version, protocol, metric_version)
where s.complete < c.tasks
order by all
