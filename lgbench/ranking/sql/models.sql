-- What boards are made of: one row a board, entry, seed and column. A column is a length, or the mean over the lengths in the
-- training range, or the score: the mean over the lengths beyond it.
--
-- Parameters: $metric, $name (a family or task, null for all families), $protocol (a name, or a name with its version
-- and changes, null for all).
--
-- A family's number is the mean over its tasks and exists for seeds that ran them all. Nothing is averaged over seeds here, nor
-- ever over versions of tasks or protocols.

with chosen as (
    from chosen($metric, $name, $protocol)
),

boards as (
    select
        board,
        task_version,
        protocol,
        count(distinct task) as tasks,
        max(length) filter (in_training_range) as train_length,
        max(length) as longest
    from chosen
    group by all
),

measured as (
    -- one value a model and length, however many files hold it, at the lengths that boards show
    select
        c.board,
        c.task_version,
        c.protocol,
        c.entry || case c.weights when 'raw' then '' else '@' || c.weights end as entry,
        c.task,
        c.seed,
        c.length,
        any_value(c.value) as value,
        any_value(c.in_training_range) as trained,
        count(c.diverged_step) > 0 as diverged,
        any_value(b.tasks) as tasks
    from chosen as c
    join boards as b using (board, task_version, protocol)
    where c.length > 0
        and ((c.length & (c.length - 1)) = 0 or c.length = b.train_length or c.length = b.longest)
    group by all
),

models as (
    -- averaged over the family's tasks
    select
        board,
        task_version,
        protocol,
        entry,
        seed,
        length,
        bool_and(trained) as trained,
        bool_or(diverged) as diverged,
        avg(value) as value
    from measured
    where value is not null
    group by all
    having count(*) = any_value(tasks)
),

columns as (
    select board, task_version, protocol, entry, seed, diverged, 'length' as kind, length, value
    from models
    union all
    select board, task_version, protocol, entry, seed, bool_or(diverged), 'in range', null, avg(value)
    from models
    where trained
    group by all
    union all
    select board, task_version, protocol, entry, seed, bool_or(diverged), 'score', null, avg(value)
    from models
    where not trained
    group by all
)

select
    c.board,
    c.task_version,
    c.protocol,
    b.tasks,
    b.train_length,
    c.entry,
    c.seed,
    c.kind,
    c.length,
    -- so that what is equal but for the order in which threads happened to add is equal
    round(c.value, 12) as value,
    c.diverged
from columns as c
join boards as b using (board, task_version, protocol)
order by c.board, c.task_version desc, c.protocol, c.entry, c.seed, c.kind, c.length
