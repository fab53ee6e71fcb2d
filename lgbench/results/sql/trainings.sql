-- Every run, once, however many files hold it: what it is, the packages that decide its raw weights, and its training curve.
--
-- Parameter: $curves, the metrics of the training curve.
with curves as (
    select run_id, map_from_entries(list({
        'metric': metric,
        'points': {'steps': [point.step for point in points], 'values': [point.value for point in points]}
    })) as curves
    from (
        select distinct on (run_id, metric) run_id, metric, points
        from kinds
        where list_contains($curves, metric)
    )
    group by run_id
),

runs as (
    select
        run_id,
        any_value(task) as task,
        any_value(task_version) as task_version,
        any_value(seed) as seed,
        any_value(diverged_step) as diverged_step,
        any_value(protocol) as protocol,
        any_value(protocol_version) as protocol_version,
        any_value(changes) as changes,
        any_value(entry) as entry,
        coalesce(any_value(plugins) filter (weights = 'raw'), any_value(plugins)) as plugins
    from kinds
    group by run_id
)

select run_id, task, task_version, seed, diverged_step, protocol, protocol_version, changes, entry, plugins, curves
from runs
left join curves using (run_id)
order by run_id
