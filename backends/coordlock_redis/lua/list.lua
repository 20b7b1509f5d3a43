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

-- Append to `list` those of the contenders at these ranks that `is_wanted`, given token, marker and value.
local function select_into(list, queue, first, last, is_wanted)
  local found = part(queue, first, last)
  for at = 2, #found, 4 do
    if is_wanted(found[at + 1], string.match(found[at + 2], '^%S+'), found[at + 3]) then
      for field = at, at + 3 do list[#list + 1] = found[field] end
    end
  end
end

local function set_of(words)
  local set = {}
  for word in string.gmatch(words, '%S+') do set[word] = true end
  return set
end
