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
    from kinds
)
where protocol is not null
    and protocol_version is not null
    and changes is not null;

-- What has a length, with the number of the protocol. The chance level belongs to no entry: there it is null. What is not
-- measured at the end of a training is left out; of the rest, `points` also has those before the end.
create view scores as
select
    k.run_id,
    k.family,
    k.task,
    k.task_version,
    p.number as protocol,
    k.metric,
    k.metric_version,
    k.layer,
    k.head,
    if(k.weights = 'chance', null, k.entry || coalesce(v.suffix, '') || if(k.weights = 'raw', '', '@' || k.weights)) as entry,
    if(k.weights = 'chance', null, k.seed) as seed,
    k.points,
    k.last_step,
    k.first_step < k.last_step as earlier,
    k.diverged_step is not null as diverged
from kinds as k
join lasts as l
    on l.run_id = k.run_id and l.step = k.last_step
join protocols as p
    on p.name = k.protocol and p.version = k.protocol_version and p.changes = k.changes
left join variants as v
    on v.entry = k.entry and v.weights = k.weights and v.plugins = k.plugins
        and v.protocol = k.protocol and v.protocol_version = k.protocol_version
where k.lengths > 0
    and k.entry is not null
    and k.seed is not null;

-- The entries and seeds that cannot be ranked, and why. A training that diverged is flagged for that alone: its answers are not
-- finite because its weights are not.
create table unsound as
with flags as (
    select * exclude (points), unnest(points) as point
    from scores
    where metric in ('looks_ahead', 'not_finite')
)

select
    task,
    task_version,
    protocol,
    entry,
    seed,
    bool_or(metric = 'looks_ahead') as looks_ahead,
    bool_or(metric = 'not_finite' and not diverged) as not_finite
from flags
where point.length is not null
    and point.step = last_step
    and point.value > 0
group by all;

-- Which tasks every seed has a run on, and by which metrics.
create table measured as
select distinct family, task, task_version, protocol, metric, metric_version, entry, seed
from scores
where entry is not null;

-- A family has a board of its own, and so has a task that is asked for by its name. No name means all families.
create macro belongs(family, task, wanted) as wanted is null or family = wanted or task = wanted;

-- With `apart`, every task has one, and families have none.
create macro board_of(family, task, wanted, apart) as if(not apart and (wanted is null or family = wanted), family, task);
