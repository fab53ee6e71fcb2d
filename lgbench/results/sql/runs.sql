-- What is equal in all rows of a run and its weights: one row for each, however many files hold the run.
create table runs as
select
    run_id,
    weights,
    any_value(entry) as entry,
    any_value(task) as task,
    any_value(family) as family,
    any_value(task_version) as task_version,
    any_value(protocol) as protocol,
    any_value(protocol_version) as protocol_version,
    any_value(changes) as changes,
    any_value(plugins) as plugins,
    any_value(seed) as seed,
    any_value(diverged_step) as diverged_step,
    max(max(step)) over (partition by run_id) as last_step
from results
where on_boards
group by run_id, weights;

-- A number for every protocol with its version and changes. The order in which changes are written means nothing.
create table protocols as
select
    dense_rank() over (order by protocol, protocol_version, list_sort(map_entries(changes))) as number,
    protocol as name,
    protocol_version as version,
    changes
from (
    select distinct protocol, protocol_version, changes
    from runs
);
