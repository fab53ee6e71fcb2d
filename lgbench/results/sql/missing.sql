-- Seeds of which something is missing on a board of one metric. `tasks` counts the tasks of the board, `present` those that the
-- seed has a run on, and `complete` those where the run has the metric. Parameters as in values.sql.

with ran as (
    select distinct board_of(family, task, $name, $apart) as board, task_version, protocol, task, entry, seed
    from models
    where entry is not null
        and list_contains($protocols, protocol)
        and belongs(family, task, $name)
),

measured as (
    select distinct board_of(family, task, $name, $apart) as board, task_version, protocol, task, entry, seed, metric_version
    from scores
    where metric = $metric
        and on_boards
        and step = last_step
        and entry is not null
        and list_contains($protocols, protocol)
        and belongs(family, task, $name)
),

tasks as (
    select distinct board, task_version, protocol, metric_version, task
    from measured
),

counts as (
    select board, task_version, protocol, metric_version, count(*) as tasks
    from tasks
    group by all
),

seeds as (
    select
        r.board,
        r.task_version,
        r.protocol,
        t.metric_version,
        r.entry,
        r.seed,
        count(distinct r.task) as present,
        count(distinct m.task) as complete
    from ran as r
    join tasks as t using (board, task_version, protocol, task)
    left join measured as m using (board, task_version, protocol, task, entry, seed, metric_version)
    group by all
)

select s.board, s.task_version, s.protocol, s.metric_version, s.entry, s.seed, s.present, c.tasks
from seeds as s
join counts as c using (board, task_version, protocol, metric_version)
where s.complete < c.tasks
order by all
