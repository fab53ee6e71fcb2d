-- The models of all runs: one row for each weights of a run, and one without entry and seed for the context-free baseline. lgbench
-- fills the table from metadata.
create table models (
    run_id varchar,
    weights varchar,
    family varchar,
    task varchar,
    task_version integer,
    family_versions integer[], -- versions of the boards of the family that have this version of the task
    protocol integer, -- number of the protocol with version and changes
    entry varchar,
    seed bigint,
    last_step integer, -- steps of the training; models are also tested before the end
    train_length integer, -- longest training inputs
    own boolean -- false for the reference runs beside those of the folder
);

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
create macro of_family(family, wanted, apart) as not apart and (wanted is null or family = wanted);
create macro board_of(family, task, wanted, apart) as if(of_family(family, wanted, apart), family, task);

create macro versions_of(family, task_version, family_versions, wanted, apart) as
    if(of_family(family, wanted, apart), family_versions, [task_version]);

-- Why the models of an entry and a seed cannot be ranked, over their rows of both metrics. A training that diverged is flagged
-- for that alone: its answers are not finite because its weights are not. 'looks_ahead' is the metric's name in published run
-- files, which are never rewritten.
create macro not_causal(metric, value) as bool_or(metric = 'looks_ahead' and value > 0);
create macro not_finite(metric, value, diverged) as bool_or(metric = 'not_finite' and value > 0 and not diverged);
