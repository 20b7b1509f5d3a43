-- How many contenders stand before a newcomer, which is of a session and comes now.
local function rank_in(queue, session) return call('ZCARD', ROOT .. 'queue:' .. queue) end

-- The contenders at the ranks from `first` to `last`, behind how many others they stand: of each its
-- id, token, claim and value.
local function part(queue, first, last)
  local found = call('ZRANGE', ROOT .. 'queue:' .. queue, first, last, 'WITHSCORES')
  local list, claims = {first}, ROOT .. 'claims:' .. queue
  for start = 1, #found, 1000 do
    local names, stop = {}, math.min(start + 998, #found)
    for at = start, stop, 2 do
      names[#names + 1] = found[at]
      names[#names + 1] = '=' .. found[at]
    end
    local stored = call('HMGET', claims, unpack(names))
    for at = start, stop, 2 do
      local place = #list
      list[place + 1], list[place + 2] = found[at], tonumber(found[at + 1])
      list[place + 3] = stored[at - start + 1] or ''
      list[place + 4] = stored[at - start + 2] or ''
    end
  end
  return list
end
