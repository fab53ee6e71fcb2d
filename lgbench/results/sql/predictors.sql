-- What probes read in each model at one length, beside its score beyond the training range: one row a task, probe, entry and seed.
-- The length is the longest that boards show, up to $times the training length. Trainings that diverged are left out, and so are
-- models that boards do not rank.
--
-- Of several versions of a task under one protocol, the newest; of several versions of a metric there, too.
--
-- Parameters: $metric, the score; $unranked, the metrics by which no value is better; $times; $name and $protocols as in values.sql.

with unsound as (
    select task, task_version, protocol, entry, seed
    from scores
    where metric in ('looks_ahead', 'not_finite')
        and step = last_step
        and belongs(family, task, $name)
    group by all
    having not_causal(metric, value) or not_finite(metric, value, diverged)
),

newest as (
    select *
    from scores
    anti join unsound using (task, task_version, protocol, entry, seed)
    where entry is not null
        and not contains(entry, '@')
        and not diverged
        and list_contains($protocols, protocol)
        and belongs(family, task, $name)
        and (metric = $metric or layer is not null or list_contains($unranked, metric))
        and on_boards
        and step = last_step
        and isfinite(value)
    qualify task_version = max(task_version) over (partition by task, protocol)
        and metric_version = max(metric_version) over (partition by task, task_version, protocol, metric)
),

shown as (
    select
        protocol,
        family,
        task,
        metric,
        entry,
        seed,
        layer,
        head,
        length,
        bool_or(in_distribution) as in_distribution,
        median(value) as value
    from newest
    group by all
),

scored as (
    select task, protocol, entry, seed, avg(value) as score
    from shown
    where metric = $metric
        and not in_distribution
    group by all
),

places as (
    select task, protocol, max(length) as length
    from (
        select *, max(length) filter (in_distribution) over (partition by task, protocol) as trained
        from shown
    )
    where metric <> $metric
        and length <= $times * trained
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
join places as p using (task, protocol, length)
join scored as o using (task, protocol, entry, seed)
where s.metric <> $metric
group by all
order by all
