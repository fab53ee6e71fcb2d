-- The rows of run files, those together that differ in their points alone: a training curve, or one metric of one model at all
-- lengths. So the other columns are looked at once for some hundred rows. `lengths` counts the points that have one.
--
-- Parameter: $paths.
select
    filename as path,
    run_id,
    entry,
    task,
    family,
    task_version,
    protocol,
    protocol_version,
    changes,
    plugins,
    seed,
    weights,
    metric,
    metric_version,
    layer,
    head,
    diverged_step,
    count(length)::integer as lengths,
    min(step) filter (length is not null) as first_step,
    max(step) filter (length is not null) as last_step,
    list({
        'step': step,
        'length': length,
        'value': value,
        'n': n,
        'in_distribution': in_distribution,
        'on_boards': on_boards
    }) as points,
    max(abs(value)) filter (isfinite(value)) as largest,
    count(*) filter (on_boards) as shown,
    bool_or(step is null) as stepless
from read_parquet($paths, hive_partitioning = false, filename = true)
group by all
