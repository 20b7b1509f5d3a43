-- Read a queue. queue, token (0 for all), window (-1 for those in the way), the markers of the
-- others -> last, the contenders, preceded by how many are omitted
local queue, token = ARGV[FIRST], tonumber(ARGV[FIRST + 1])
local window = tonumber(ARGV[FIRST + 2])
local key = ROOT .. 'queue:' .. queue
if token == 0 then return finish('ok', last, part(queue, 0, -1)) end
local count = call('ZCOUNT', key, '-inf', int(token))
if window >= 0 then
  return finish('ok', last, part(queue, math.max(0, count - 1 - window), count - 1))
end
local compatible, listed = {}, {0}
for marker in string.gmatch(ARGV[FIRST + 3], '%S+') do compatible[marker] = true end
for first = 0, count - 1, 64 do
  local found = part(queue, first, math.min(first + 63, count - 1))
  for at = 2, #found, 4 do
    if found[at + 1] == token or not compatible[string.match(found[at + 2], '^%S+')] then
      for field = at, at + 3 do listed[#listed + 1] = found[field] end
    end
  end
end
return finish('ok', last, listed)
