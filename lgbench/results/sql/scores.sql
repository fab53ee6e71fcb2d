-- What all boards are made from, prepared once. The table `variants` has the entries with several versions of a package, and the
-- suffixes that tell them apart; ../variants.py decides both.

-- A number for every protocol with its version and changes; the order in which changes are written means nothing.
create table protocols as
select
    dense_rank() over (order by protocol, protocol_version, list_sort(map_entries(changes))) as number,
    protocol as name,
    protocol_version as version,
    changes
from (
    select distinct protocol, protocol_version, changes
    from results
)
where protocol is not null
    and protocol_version is not null
    and changes is not null;

-- The rows that have a length, with the number of the protocol. The chance level belongs to no entry: there it is null.
create view scores as
select
    r.family,
    r.task,
    r.task_version,
    p.number as protocol,
    r.metric,
    r.metric_version,
    if(r.weights = 'chance', null, r.entry || coalesce(v.suffix, '') || if(r.weights = 'raw', '', '@' || r.weights)) as entry,
    if(r.weights = 'chance', null, r.seed) as seed,
    r.length,
    r.value,
    r.in_distribution,
    r.on_boards,
    r.diverged_step is not null as diverged
from results as r
join protocols as p
    on p.name = r.protocol and p.version = r.protocol_version and p.changes = r.changes
left join variants as v
    on v.entry = r.entry and v.weights = r.weights and v.plugins = r.plugins
where r.length is not null
    and r.entry is not null
    and r.seed is not null;

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
    and value > 0
group by all;

-- Which tasks every seed has a run on, and by which metrics. Most rows differ in length and value alone, so the others are looked
-- at once for all that are the same.
create table measured as
with kinds as (
    select distinct
        family, task, task_version, protocol, protocol_version, changes, metric, metric_version, entry, weights, plugins, seed
    from results
    where length is not null
        and weights <> 'chance'
)

select distinct
    k.family,
    k.task,
    k.task_version,
    p.number as protocol,
    k.metric,
    k.metric_version,
    k.entry || coalesce(v.suffix, '') || if(k.weights = 'raw', '', '@' || k.weights) as entry,
    k.seed
from kinds as k
join protocols as p
    on p.name = k.protocol and p.version = k.protocol_version and p.changes = k.changes
left join variants as v
    on v.entry = k.entry and v.weights = k.weights and v.plugins = k.plugins
where k.entry is not null
    and k.seed is not null;

-- A family has a board of its own, and so has a task that is asked for by its name. No name means all families.
create macro belongs(family, task, wanted) as wanted is null or family = wanted or task = wanted;

-- With `apart`, every task has one, and families have none.
create macro board_of(family, task, wanted, apart) as if(not apart and (wanted is null or family = wanted), family, task);
