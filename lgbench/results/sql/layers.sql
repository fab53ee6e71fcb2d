-- What probes have read at the end of trainings: one row an entry, task, protocol, probe, layer and length, the mean over heads
-- and seeds. Trainings that diverged are left out.
--
-- Parameter: $unranked, the metrics by which no value is better; any other with a layer is a probe, too.

with each_head as (
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
        length,
        median(value) as value
    from scores
    where entry is not null
        and not diverged
        and (layer is not null or list_contains($unranked, metric))
        and on_boards
        and step = last_step
        and isfinite(value)
    group by all
)

select * exclude (head, seed, value), avg(value) as value, count(distinct seed) as seeds
from each_head
group by all
order by all
