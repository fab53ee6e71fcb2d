-- The values of one metric at the lengths that boards show: one row a board, entry, seed, task, length and step. The context-free
-- baseline has no entry and no seed. Nothing is averaged here but a probe, over the layers and heads that are asked for. All are of
-- the end of the training, or of every eval step: then of models tested before the end, at the lengths of those tests.
--
-- ../../reports/curves.py makes the same choice of rows, of raw weights, without DuckDB, for the curves that `lgbench run` draws.
--
-- Parameters: $metric; $name, a family or task, null for all families; $apart, whether every task has a board instead;
-- $protocols, numbers of the table `protocols`; $whole, for numbers of whole models alone, else $layer and $head, null for all;
-- $every_step, whether of every eval step.

-- One scan of the run files.
with measured as (
    select
        * exclude (task_version),
        unnest(versions_of(family, task_version, family_versions, $name, $apart)) as task_version,
        board_of(family, task, $name, $apart) as board
    from scores
    where metric in ($metric, 'looks_ahead', 'not_finite')
        and (on_boards or $every_step or metric <> $metric)
        and ($every_step or step = last_step)
        and list_contains($protocols, protocol)
        and belongs(family, task, $name)
),

-- Nothing, unless of every eval step.
earlier as (
    select distinct board, task_version, protocol, metric_version, run_id, weights, length
    from measured
    where metric = $metric
        and step < last_step
),

chosen as (
    select *
    from measured
    where metric = $metric
        and (not $every_step or (board, task_version, protocol, metric_version, length) in (
            select (board, task_version, protocol, metric_version, length) from earlier
        ))
        and (not $every_step or entry is null or (run_id, weights, metric_version) in (
            select (run_id, weights, metric_version) from earlier
        ))
        and (layer is null and head is null or not $whole)
        and ($layer is null or layer = $layer)
        and ($head is null or head = $head)
),

unsound as (
    select
        task,
        task_version,
        protocol,
        entry,
        seed,
        not_causal(metric, value) as not_causal,
        not_finite(metric, value, diverged) as not_finite
    from measured
    group by all
),

each_head as (
    select
        board,
        task_version,
        protocol,
        metric_version,
        entry,
        seed,
        task,
        length,
        step,
        train_length,
        layer,
        head,
        bool_and(in_distribution) as in_distribution,
        bool_or(diverged) as diverged,
        -- over runs: all for the context-free baseline, else those that differ in their averagers alone
        median(value) as value
    from chosen
    group by all
),

shown as (
    select
        * exclude (layer, head, in_distribution, diverged, value),
        bool_and(in_distribution) as in_distribution,
        bool_or(diverged) as diverged,
        -- over the heads with a finite value, if any
        coalesce(avg(value) filter (isfinite(value)), avg(value)) as value
    from each_head
    group by all
)

select
    board,
    task_version,
    protocol,
    metric_version,
    max(train_length) over (partition by board, task_version, protocol, metric_version) as train_length,
    entry,
    seed,
    task,
    length,
    step,
    in_distribution,
    value,
    diverged,
    coalesce(not_causal, false) as not_causal,
    coalesce(not_finite, false) as not_finite
from shown
left join unsound using (task, task_version, protocol, entry, seed)
order by board, task_version, protocol, metric_version
