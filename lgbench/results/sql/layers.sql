-- What probes have read at the end of trainings: one row an entry, task, protocol, probe, layer and length, the mean over heads
-- and seeds. Trainings that diverged are left out.
--
-- Parameter: $unranked, the metrics by which no value is better; any other with a layer is a probe, too.

with chosen as (
    select * exclude (points), unnest(points) as point
    from scores
    where entry is not null
        and not diverged
        and (layer is not null or list_contains($unranked, metric))
),

each_head as (
    select
        entry,
        task,
        task_version,
        protocol,
        metric,
        metric_version,
        layer,
        head,
        seed,
        point.length as length,
        -- the same in all files, unless something is wrong with one of them
        median(point.value) as value
    from chosen
    where point.length is not null
        and point.on_boards
        and point.step = last_step
        and isfinite(point.value)
    group by all
)

select * exclude (head, seed, value), avg(value) as value, count(distinct seed) as seeds
from each_head
group by all
order by all
