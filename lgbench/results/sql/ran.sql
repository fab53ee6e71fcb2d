-- The models that could be on the boards, one row each. Parameters $name, $apart and $protocols as in values.sql.
select
    board_of(family, task, $name, $apart) as board,
    unnest(versions_of(family, task_version, family_versions, $name, $apart)) as task_version,
    protocol,
    entry,
    seed,
    task,
    run_id,
    weights
from models
where entry is not null
    and list_contains($protocols, protocol)
    and belongs(family, task, $name)
order by all
