-- What probes read in each model at one length, beside its score beyond the training range: one row a task, probe, entry and seed.
-- The length is the longest that boards show, up to $times the training length. Trainings that diverged are left out.
--
-- Of several versions of a task under one protocol, the newest.
--
-- Parameters: $metric, the score; $unranked, the metrics by which no value is better; $times; $name and $protocols as in values.sql.

with points as (
    select * exclude (points), unnest(points) as point
    from scores
    where entry is not null
        and not contains(entry, '@')
        and not diverged
        and list_contains($protocols, protocol)
        and belongs(family, task, $name)
        and (metric = $metric or layer is not null or list_contains($unranked, metric))
),

shown as (
    select
        * exclude (point, last_step),
        point.length as length,
        point.value as value,
        point.in_distribution as in_distribution
    from points
    where point.length is not null
        and point.on_boards
        and point.step = last_step
        and isfinite(point.value)
    qualify task_version = max(task_version) over (partition by task, protocol)
),

scored as (
    select task, task_version, protocol, entry, seed, avg(value) as score
    from shown
    where metric = $metric
        and not in_distribution
    group by all
),

trained as (
    select task, task_version, protocol, max(length) filter (in_distribution) as length
    from shown
    group by all
),

places as (
    select task, task_version, protocol, max(s.length) as length
    from shown as s
    join trained as t using (task, task_version, protocol)
    where s.metric <> $metric
        and s.length <= $times * t.length
    group by all
)

select
    s.protocol,
    s.family,
    s.task,
    s.metric,
    s.entry,
    s.seed,
    avg(s.value) as value,
    any_value(o.score) as score
from shown as s
join places as p using (task, task_version, protocol, length)
join scored as o using (task, task_version, protocol, entry, seed)
where s.metric <> $metric
group by all
order by all
