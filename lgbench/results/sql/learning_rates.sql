-- The learning rates that tuning chose, by board, entry and task. Parameters: $name, $apart and $protocols as in values.sql.

with chosen as (
    select * exclude (points), unnest(points) as point
    from kinds
    where metric = 'learning_rate'
)

select distinct
    board_of(c.family, c.task, $name, $apart) as board,
    c.task_version,
    p.number as protocol,
    c.entry || coalesce(v.suffix, '') as entry,
    c.task,
    c.point.value as rate
from chosen as c
join protocols as p
    on p.name = c.protocol and p.version = c.protocol_version and p.changes = c.changes
left join variants as v
    on v.entry = c.entry and v.weights = c.weights and v.plugins = c.plugins
        and v.protocol = c.protocol and v.protocol_version = c.protocol_version
where list_contains($protocols, p.number)
    and belongs(c.family, c.task, $name)
    and isfinite(c.point.value)
order by all
