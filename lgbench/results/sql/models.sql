-- The runs as boards name them. The table `suffixes` has the entries with several versions of a package, and the suffixes that
-- tell the versions apart (lgbench.results.entries). The context-free baseline ("chance") has no entry and no seed.
create table models as
select
    r.run_id,
    r.weights,
    r.family,
    r.task,
    r.task_version,
    p.number as protocol,
    if(r.weights = 'chance', null, r.entry || coalesce(s.suffix, '') || if(r.weights = 'raw', '', '@' || r.weights)) as entry,
    if(r.weights = 'chance', null, r.seed) as seed,
    r.last_step,
    r.diverged_step is not null as diverged
from runs as r
join protocols as p
    on p.name = r.protocol and p.version = r.protocol_version and p.changes = r.changes
left join suffixes as s
    on s.entry = r.entry and s.weights = r.weights and s.plugins = r.plugins
        and s.protocol = r.protocol and s.protocol_version = r.protocol_version;

-- Every value with a length, of all steps.
create view scores as
select m.*, r.metric, r.metric_version, r.layer, r.head, r.step, r.length, r.value, r.in_distribution, r.on_boards
from results as r
join models as m using (run_id, weights)
where r.length is not null;

-- The entries and seeds that cannot be ranked, and why. A training that diverged is flagged for that alone: its answers are not
-- finite because its weights are not.
create table unsound as
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
group by all;

-- A family has a board of its own, and so has a task that is asked for by its name. No name means all families.
create macro belongs(family, task, wanted) as wanted is null or family = wanted or task = wanted;

-- With `apart`, every task has one, and families have none.
create macro board_of(family, task, wanted, apart) as if(not apart and (wanted is null or family = wanted), family, task);
