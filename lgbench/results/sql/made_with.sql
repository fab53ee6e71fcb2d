-- The packages that decide the numbers of each entry and its weights on each task, under each version of a protocol.
select distinct entry, weights, plugins, task, protocol, protocol_version
from kinds
where entry is not null
    and protocol is not null
    and protocol_version is not null
    and weights <> 'chance'
    and lengths > 0
