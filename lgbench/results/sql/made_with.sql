-- The packages that decide the numbers of each entry and its weights on each task.
select distinct entry, weights, plugins, task
from kinds
where entry is not null
    and weights <> 'chance'
    and lengths > 0
