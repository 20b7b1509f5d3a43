-- For scripts that grant or extend: a server that was a replica meanwhile, and is the primary again,
-- has the name of before, and may lack what it has granted.
local function end_what_a_promotion_has_lost()
  local found = promotion()
  -- A server may forget its promotion: only another one counts.
  if found ~= '' and found ~= promoted then begin_anew(now) end
end
