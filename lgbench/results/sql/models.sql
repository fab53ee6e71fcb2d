-- Every value with a length, of all steps, with the model that has it. Families and tasks are equal in both, and stand among the
-- keys so that DuckDB reads no row group without the families and tasks of the chosen models.
create view scores as
select
    m.*,
    r.metric,
    r.metric_version,
    r.layer,
    r.head,
    r.step,
    r.length,
    r.value,
    r.in_distribution,
    r.on_boards,
    r.diverged_step is not null as diverged
from results as r
join models as m using (run_id, weights, family, task)
where r.length is not null;

-- A family has a board of its own, and so has a task that is asked for by its name. No name means all families.
create macro belongs(family, task, wanted) as wanted is null or family = wanted or task = wanted;

-- With `apart`, every task has one, and families have none.
create macro board_of(family, task, wanted, apart) as if(not apart and (wanted is null or family = wanted), family, task);

-- The entries and seeds that cannot be ranked, and why. A training that diverged is flagged for that alone: its answers are not
-- finite because its weights are not.
create macro unsound(wanted) as table
select
    task,
    task_version,
    protocol,
    entry,
    seed,
    bool_or(metric = 'looks_ahead') as looks_ahead,
    bool_or(metric = 'not_finite' and not diverged) as not_finite
from scores
where metric in ('looks_ahead', 'not_finite')
    and step = last_step
    and value > 0
    and belongs(family, task, wanted)
group by all;
