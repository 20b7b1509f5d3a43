-- Delete keys. When the server counts, which does not matter; key and the contender's id of each
-- -> how many there were
local count = 0
for at = 3, #ARGV, 2 do
  local found = redis.call('GET', ARGV[at])
  if found and string.match(found, '^%S+') == ARGV[at + 1] then
    count = count + redis.call('DEL', ARGV[at])
  end
end
return {'ok', count}
