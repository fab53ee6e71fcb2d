-- One number of the training of every run in `ran`, of raw weights, in the columns of values.sql at a length of 0.
--
-- $metric: gradient_norm, the largest finite one over all steps, also of a training that diverged; loss_variance, of the points
-- of the training loss over the last half of the steps, in square nats, null after a training that diverged and for fewer than
-- two points; diverged, 1 or 0.
with points as (
    select distinct run_id, metric, step, value
    from results
    where metric in ('train_loss', 'gradient_norm')
),

halves as (
    select *, 2 * step > max(step) over (partition by run_id) as late
    from points
),

numbers as (
    select
        run_id,
        max(value) filter (metric = 'gradient_norm' and isfinite(value)) as gradient_norm,
        var_samp(value) filter (metric = 'train_loss' and late and isfinite(value)) as loss_variance
    from halves
    group by run_id
),

lost as (
    select distinct run_id
    from results
    where diverged_step is not null
)

select
    board,
    task_version,
    protocol,
    1 as metric_version,
    0 as train_length,
    entry,
    seed,
    task,
    0 as length,
    case $metric
        when 'gradient_norm' then gradient_norm
        when 'loss_variance' then if(run_id in (from lost), null, loss_variance)
        else (run_id in (from lost))::integer
    end as value
from ran
left join numbers using (run_id)
where weights = 'raw'
