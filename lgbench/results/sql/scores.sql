-- What all boards are made from, prepared once.

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
    case r.weights when 'chance' then null when 'raw' then r.entry else r.entry || '@' || r.weights end as entry,
    if(r.weights = 'chance', null, r.seed) as seed,
    r.length,
    r.value,
    r.in_distribution,
    r.on_boards,
    r.diverged_step is not null as diverged
from results as r
join protocols as p
    on p.name = r.protocol and p.version = r.protocol_version and p.changes = r.changes
where r.length is not null
    and r.entry is not null
    and r.seed is not null;

-- Which tasks every seed has a run on, and by which metrics. Most rows differ in length and value alone, so the others are looked
-- at once for all that are the same.
create table measured as
with kinds as (
    select distinct
        family, task, task_version, protocol, protocol_version, changes, metric, metric_version, entry, weights, seed
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
    if(k.weights = 'raw', k.entry, k.entry || '@' || k.weights) as entry,
    k.seed
from kinds as k
join protocols as p
    on p.name = k.protocol and p.version = k.protocol_version and p.changes = k.changes
where k.entry is not null
    and k.seed is not null;

-- A family has a board of its own, and so has a task that is asked for by its name. No name means all families.
create macro belongs(family, task, wanted) as wanted is null or family = wanted or task = wanted;

-- With `apart`, every task has one, and families have none.
create macro board_of(family, task, wanted, apart) as if(not apart and (wanted is null or family = wanted), family, task);
