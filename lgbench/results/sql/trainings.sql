-- Every run, once, however many files hold it, with its training curve.
--
-- Parameter: $curves, the metrics of the training curve.
with points as (
    select distinct run_id, metric, step, value
    from results
    where list_contains($curves, metric)
),

curves as (
    select run_id, metric, list({'step': step, 'value': value} order by step) as points
    from points
    group by run_id, metric
),

diverged as (
    select run_id, any_value(diverged_step) as diverged_step
    from results
    where diverged_step is not null
    group by run_id
)

select
    m.run_id,
    m.task,
    m.task_version,
    m.seed,
    d.diverged_step,
    m.protocol,
    m.entry,
    map_from_entries(list({'metric': c.metric, 'points': c.points}) filter (c.metric is not null)) as curves
from models as m
left join curves as c using (run_id)
left join diverged as d using (run_id)
where m.weights = 'raw'
group by all
order by m.run_id
