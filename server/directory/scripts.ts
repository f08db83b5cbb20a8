/**
 * The scripts that run in Redis, each atomically. Numbers travel as text, since JSON in Lua keeps 14 digits.
 *
 * A runtime's record is a hash: `@epoch`, `@active`, `@lost`, `@version`, and for each instance its epoch and the replicas
 * that have live sessions of it. Another hash has the replicas, each with the end of its lease, `@born`, the time when the directory
 * began to remember, and `@latest`, the latest version of any record.
 *
 * Times are those of the directory's own clock, which never jumps. Each renewal stores its time as `@clock`, and that of Redis's
 * clock as `@wall`. The current time is `@clock` plus the time since then: nothing if Redis's clock went back, and at most half a
 * lease if it jumped forward, since renewals come every quarter. So a jump of Redis's clock neither ends nor prolongs a lease.
 *
 * The stored data may be damaged, or written by somebody else. What cannot be read counts as forgotten, and the replicas that know it
 * tell it again.
 */
import { createHash } from 'node:crypto'

export interface Script {
  readonly text: string
  readonly sha: string
}

function script(text: string): Script {
  return { text, sha: createHash('sha1').update(text).digest('hex') }
}

const READ = `
local time = redis.call('TIME')
local function text(number) return string.format('%.0f', number) end
local function number(value)
  if value and #value <= 16 and string.match(value, '^%d+$') and tonumber(value) <= 9007199254740991 then
    return tonumber(value)
  end
end
local function pairsOf(key)
  local all = redis.pcall('HGETALL', key)
  if not all.err then return all end
  if not string.find(all.err, 'WRONGTYPE', 1, true) then error(all.err) end
  redis.call('DEL', key)
  return {}
end
`

const CLOCK = `
local wall = time[1] * 1000 + math.floor(time[2] / 1000)
local function clock(fields, lease)
  local shown, at = number(fields['@clock']), number(fields['@wall'])
  if not shown or not at or math.abs(shown - at) > 3200000000000 then return wall end
  local passed = math.max(0, wall - at)
  if lease > 0 then passed = math.min(passed, math.floor(lease / 2)) end
  return shown + passed
end
-- No lease is longer.
local function endOf(value, now)
  local ends = number(string.match(value, '^%d+'))
  if ends and ends <= now + 3600000 then return ends end
end
local function fieldsOf(all)
  local fields = {}
  for i = 1, #all, 2 do fields[all[i]] = all[i + 1] end
  return fields
end
`

/**
 * Reads or changes one runtime's record by the rules of `record.ts`, publishes it if it changed, and returns it. Returns nothing if there
 * is none, or an empty text if a young directory is asked, which may have forgotten it.
 *
 * KEYS: the record, the replicas. ARGV: enter, leave or look; runtime, instance, replica; epoch presented, epoch seen and
 * who held it; leaseMs, how long records are kept with and without live sessions, the most instances; channel.
 */
export const CHANGE = script(`${READ}${CLOCK}
local operation, runtime, instance, replica = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local presented, seen, seenActive = tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7]
local lease, keepLive, keepEmpty, most = tonumber(ARGV[8]), ARGV[9], ARGV[10], tonumber(ARGV[11])
local channel = ARGV[12]

local others = fieldsOf(pairsOf(KEYS[2]))
local now = clock(others, lease)
local alive = { [replica] = true }
for name, value in pairs(others) do
  if (endOf(value, now) or 0) >= now then alive[name] = true end
end
local young = now - math.min(now, number(others['@born']) or now) < lease

-- Beyond what a client may present, and what granting could ever reach.
local function epochOf(value)
  local epoch = number(value)
  if epoch and epoch < 1000000000000000 then return epoch end
end
-- The same check as in \`runtime-state.ts\`: replicas ignore other names, so nobody would ever remove such an instance.
local function isOurs(name) return #name <= 512 and string.match(name, "^[%w_.~%%!*'()-]+$") end
local stored, before = pairsOf(KEYS[1]), {}
local epoch, active, lost, version, holdings, count = 0, '', 0, 0, {}, 0
for i = 1, #stored, 2 do
  local field, value = stored[i], stored[i + 1]
  before[field] = value
  if field == '@epoch' then epoch = math.max(epoch, epochOf(value) or 0)
  elseif field == '@active' then active = value
  elseif field == '@lost' then lost = math.min(number(value) or 0, now + lease)
  elseif field == '@version' then version = number(value) or 0
  else
    local held = epochOf(string.match(value, '^%d+'))
    if held and isOurs(field) then
      local holding = { epoch = held, replicas = {} }
      for word in string.gmatch(value, ' (%S+)') do
        if alive[word] then table.insert(holding.replicas, word) end
      end
      holdings[field] = holding
      epoch = math.max(epoch, held)
      count = count + 1
    end
  end
end
local stamp = now * 1000 + time[2] % 1000
if version > stamp + 1000000000 then version = 0 end
if operation ~= 'enter' and #stored == 0 then return operation == 'look' and young and '' end

local function grant(name)
  if young then return end
  epoch = epoch + 1
  holdings[name].epoch = epoch
  active = name
end
local function remember(other, holder)
  if other <= epoch then return end
  epoch, active, lost = other, holder, now + lease
end
local function without(list, name)
  local rest = {}
  for _, one in ipairs(list) do if one ~= name then table.insert(rest, one) end end
  return rest
end

remember(seen, seenActive)
if operation == 'enter' then
  local holding = holdings[instance]
  if holding == nil then
    holding = { epoch = 0, replicas = {} }
    holdings[instance] = holding
    count = count + 1
  end
  holding.replicas = without(holding.replicas, replica)
  table.insert(holding.replicas, replica)
  holding.epoch = math.max(holding.epoch, presented)
  if holding.epoch == 0 then grant(instance)
  elseif holding.epoch == epoch and active == '' then active = instance
  else remember(holding.epoch, instance) end
  while count > most do
    local oldest
    for name, one in pairs(holdings) do
      if #one.replicas == 0 and name ~= active then
        local least = oldest and holdings[oldest].epoch
        if oldest == nil or one.epoch < least or (one.epoch == least and name < oldest) then oldest = name end
      end
    end
    if oldest == nil then break end
    holdings[oldest] = nil
    count = count - 1
  end
elseif operation == 'leave' and holdings[instance] then
  holdings[instance].replicas = without(holdings[instance].replicas, replica)
end

local live = false
if holdings[active] == nil or #holdings[active].replicas == 0 then
  if now >= lost then
    local best
    for name, one in pairs(holdings) do
      if #one.replicas > 0 then
        local most = best and holdings[best].epoch
        if best == nil or one.epoch > most or (one.epoch == most and name > best) then best = name end
      end
    end
    if best then grant(best) end
  end
end

local after, changed, fields = { ['@epoch'] = text(epoch), ['@active'] = active, ['@lost'] = text(lost) }, false, 3
for name, one in pairs(holdings) do
  table.sort(one.replicas)
  after[name] = text(one.epoch)
  for _, each in ipairs(one.replicas) do
    after[name] = after[name] .. ' ' .. each
    live = true
  end
  fields = fields + 1
end
for field, value in pairs(after) do if before[field] ~= value then changed = true end end
if #stored / 2 ~= fields + 1 then changed = true end
if changed then
  version = math.max(version + 1, stamp)
  after['@version'] = text(version)
  redis.call('DEL', KEYS[1])
  for field, value in pairs(after) do redis.call('HSET', KEYS[1], field, value) end
end
if changed or operation == 'enter' then redis.call('PEXPIRE', KEYS[1], live and keepLive or keepEmpty) end
local latest = number(others['@latest']) or 0
if version > latest or latest > stamp + 1000000000 then redis.call('HSET', KEYS[2], '@latest', text(version)) end

local age = math.max(0, math.floor((stamp - version) / 1000))
local said = { runtime, text(epoch), active, text(version), text(age) }
for name in pairs(holdings) do
  table.insert(said, name)
  table.insert(said, after[name])
end
local answer = cjson.encode(said)
if changed then redis.call('PUBLISH', channel, answer) end
return answer
`)

/**
 * Renews a replica's lease, or ends it if leaseMs is 0. Returns how old the directory is, whether the lease had lapsed, and all
 * replicas: name, rest of the lease (below 0 if it is dead), address.
 *
 * A young directory stays young while a replica says (`1`) that it is still telling what was forgotten. A directory that lacks the
 * latest version that a replica saw is an older copy of itself, and becomes young again.
 *
 * KEYS: the replicas. ARGV: replica, address, leaseMs, how long the dead are remembered, whether it is telling, the latest
 * version that it saw.
 */
export const RENEW = script(`${READ}${CLOCK}
local replica, address, lease, keep = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local fields = fieldsOf(pairsOf(KEYS[1]))
local now = clock(fields, lease)
local born = number(fields['@born'])
local isOlder = (number(ARGV[6]) or 0) > (number(fields['@latest']) or 0)
if not born or born > now or isOlder then born = now end
if ARGV[5] == '1' and now - born < lease then born = math.max(born, now - math.floor(lease / 2)) end
local lapsed = not fields[replica] or (endOf(fields[replica], now) or 0) < now
if lease > 0 then
  fields[replica] = text(now + lease) .. ' ' .. address
  redis.call('HSET', KEYS[1], '@born', text(born), '@clock', text(now), '@wall', text(wall), replica, fields[replica])
else
  fields[replica] = nil
  redis.call('HDEL', KEYS[1], replica)
end
local said = { text(now - born), lapsed and '1' or '0' }
for name, value in pairs(fields) do
  local ends = endOf(value, now)
  if string.sub(name, 1, 1) == '@' then ends = nil
  elseif not ends or ends + keep < now then redis.call('HDEL', KEYS[1], name)
  else
    table.insert(said, name)
    table.insert(said, text(ends - now))
    table.insert(said, string.match(value, '^%d+ ?(.*)$'))
  end
end
return cjson.encode(said)
`)

/**
 * Changes revocations, and publishes the new version if something changed. Returns the version of the list, followed by `same` if the
 * caller has seen that version; by `long` if the list is too long to be read; or else by `list`, the number of rules that there was no
 * room for, and the text and the value of each entry.
 *
 * The value of a rule is the time when it ends, in seconds, or empty if never. Before that may be the id of the replica that added it. The
 * value of a removed rule is `removed` and the time until which that is remembered, so that a replica that missed the removal does not write
 * the rule back. With an id in between, only a rule of that replica is removed. If there is no room, the earliest removals are forgotten.
 *
 * KEYS: the revocations, their version. ARGV: channel; the most rules, and bytes of their texts, which are also the limits for removed
 * ones; the most entries and bytes that are read; how long entries are kept after their time; the caller's time, since Redis's clock may
 * have jumped ahead; the version that the caller has seen; `set`, `fill` for rules that may have been removed meanwhile, or `clear` to
 * replace a list that is too long; then the text and value of each entry.
 */
export const REVOKE = script(`${READ}
local most, mostBytes, mostRead, mostReadBytes = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local keep, theirs, seen, mode = tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[8], ARGV[9]
local ours = tonumber(time[1])
local shown = redis.pcall('HGET', KEYS[2], 'version')
local version = type(shown) == 'string' and number(shown) or 0
if #ARGV == 9 and mode ~= 'clear' and version > 0 and seen == text(version) then return { seen, 'same' } end
local there, full, changed = {}, 0, false
-- A key of another type: the list is lost, and nobody may be let in until an operator has written it anew.
local all = mode == 'set' and pairsOf(KEYS[1]) or redis.pcall('HGETALL', KEYS[1])
if all.err then return { '', 'list', '0', all.err, '' } end
local function endOf(value) return tonumber(string.match(value, '[%d.]+$') or '') end
local function isRemoved(value) return string.sub(value, 1, 7) == 'removed' end
-- Rules and removals each have their own room, so that taking rules back makes room.
local rules, gone = { count = 0, bytes = 0 }, { count = 0, bytes = 0 }
local function roomOf(value) return isRemoved(value) and gone or rules end
local function put(text, value, times)
  local room = roomOf(value)
  room.count = room.count + times
  room.bytes = room.bytes + times * (#text + 2)
  there[text] = times > 0 and value or nil
end
local now = math.min(ours, theirs)
local function isOver(value, at, kept)
  local ends = endOf(value)
  return ends and ends + kept <= at
end
for i = 1, #all, 2 do
  if isOver(all[i + 1], now, keep) then redis.call('HDEL', KEYS[1], all[i])
  else put(all[i], all[i + 1], 1) end
end
local function isFull(text, share)
  return rules.count >= most * share or rules.bytes + #text + 2 > mostBytes * share
end
-- Once, when there is no more room.
local function forgetOver()
  for text, value in pairs(there) do
    if not isRemoved(value) and isOver(value, now, 0) then
      redis.call('HDEL', KEYS[1], text)
      put(text, value, -1)
    end
  end
  forgetOver = function() end
end
local function isLong()
  return rules.count + gone.count > mostRead or rules.bytes + gone.bytes > mostReadBytes
end
if mode == 'clear' and isLong() then
  redis.call('DEL', KEYS[1])
  there, rules, gone, changed = {}, { count = 0, bytes = 0 }, { count = 0, bytes = 0 }, true
end
if mode == 'clear' then mode = 'fill' end
for i = 10, #ARGV, 2 do
  local text, value = ARGV[i], ARGV[i + 1]
  local old = there[text]
  -- A rule that several replicas have added is nobody's.
  if old and old ~= value and not isRemoved(old) and not isRemoved(value) then value = string.match(value, '%S*$') end
  local same = old and (mode == 'fill' or old == value or (isRemoved(old) and isRemoved(value)))
  local only = string.match(value, '^removed (%S+) ')
  -- Nor is anything written if Redis has lost the rule, since other replicas may have it.
  same = same or (only and string.sub(old or '', 1, #only) ~= only)
  -- Else a replica whose clock is behind would write it back each time it is removed, and tell all others, who do the same.
  same = same or (mode == 'fill' and isOver(value, ours, keep))
  -- Nor are rules that are over written back where others may soon need their room.
  same = same or (mode == 'fill' and isOver(value, now, 0) and isFull(text, 0.5))
  local isNew = not isRemoved(value) and (not old or isRemoved(old))
  if not same and isNew and isFull(text, 1) then forgetOver() end
  if not same and isNew and isFull(text, 1) then full = full + 1
  elseif not same then
    if old then put(text, old, -1) end
    put(text, value, 1)
    redis.call('HSET', KEYS[1], text, value)
    changed = true
  end
end
if gone.count > most or gone.bytes > mostBytes then
  local texts = {}
  for text, value in pairs(there) do if isRemoved(value) then table.insert(texts, text) end end
  table.sort(texts, function(a, b)
    local x, y = endOf(there[a]) or 0, endOf(there[b]) or 0
    return x < y or (x == y and a < b)
  end)
  for _, text in ipairs(texts) do
    if gone.count <= most and gone.bytes <= mostBytes then break end
    redis.call('HDEL', KEYS[1], text)
    put(text, there[text], -1)
  end
end
if changed or version == 0 then
  version = math.max(version + 1, time[1] * 1000000 + time[2])
  redis.call('DEL', KEYS[2])
  redis.call('HSET', KEYS[2], 'version', text(version))
end
if changed then redis.call('PUBLISH', ARGV[1], text(version)) end
if isLong() then return { text(version), 'long' } end
local said = { text(version), 'list', tostring(full) }
for text, value in pairs(there) do
  table.insert(said, text)
  table.insert(said, value)
end
return said
`)

/**
 * Returns the commands that the scripts and channels need and the user may not run, or nothing if Redis cannot tell.
 *
 * KEYS: one of the directory. ARGV: the channels.
 */
export const RIGHTS = script(`
local missing = {}
local function need(...)
  if not redis.acl_check_cmd(...) then table.insert(missing, table.concat({...}, ' ')) end
end
if not redis.acl_check_cmd then return missing end
local key = KEYS[1]
need('TIME')
need('HGET', key, '')
need('HGETALL', key)
need('HSET', key, '', '')
need('HDEL', key, '')
need('DEL', key)
need('PEXPIRE', key, '1')
for _, channel in ipairs(ARGV) do
  need('PUBLISH', channel, '')
  need('SUBSCRIBE', channel)
end
return missing
`)

/** Fails if Redis accepts no writes, as when it is full. Leaves nothing behind. KEYS: one that nobody uses. */
export const WRITE = script(`
redis.call('HSET', KEYS[1], '', '')
redis.call('DEL', KEYS[1])
`)
