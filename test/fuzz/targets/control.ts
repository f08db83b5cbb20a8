import { MAX_CONTROL_BYTES, parseControl } from '../../../protocol/wire/control.ts'
import { parseReset } from '../../../protocol/wire/yamux/reset-message.ts'
import { holds, ourErrorOr, same } from '../holds.ts'
import { mutate } from '../mutate.ts'
import type { Random } from '../random.ts'
import type { FuzzTarget } from '../target.ts'

const VALUES: readonly unknown[] = [
  ...[0, 1, -1, 0.5, 1e308, 2 ** 53, 86_400_001, true, null, '', 'a', 'limit', 'demo', '\u0000', '\ud800', '..', '*'],
  ...['x'.repeat(300), [], {}, ['*'], [1], { windowBytes: 65_536, streams: 10 }, { windowBytes: '1' }],
  [{ path: '/', origins: ['*'] }],
  [{ path: 'x', origins: 1 }],
]

const MESSAGES: Record<string, Record<string, unknown>> = {
  hello: {
    ...{ minor: 0, software: 'x/1', instance: 'i', startedMs: 1, lastEpoch: 0, connection: 0, features: ['a'] },
    ...{ limits: { windowBytes: 65_536 }, cors: [{ path: '/', origins: ['*'], maxAge: 5 }], allowCallers: ['::1'] },
  },
  welcome: { minor: 0, software: 'x', session: 's', replica: 'r', runtime: 'demo', epoch: 3, features: [] },
  ready: { epoch: 1, active: true },
  reauth: { token: 'a.b.c' },
  'reauth-ok': { expiresMs: 5 },
  'reauth-refused': { requestId: 'r' },
  drain: { reason: 'x', afterMs: 1, deadlineMs: 2 },
  drained: { lastStream: 0 },
  reset: { stream: 2, code: 'limit' },
  notice: { message: 'm', code: 'c' },
  spans: { requests: [{ of: 'b7ad6b7169203331', spans: [] }] },
  check: { id: 1 },
  checked: { id: 1, targets: [{ route: 'a', ms: 1, code: 'timeout' }], more: 0 },
  bye: { reason: 'r' },
}

const NAMES = [...new Set(Object.values(MESSAGES).flatMap(Object.keys)), 'type', '__proto__', 'constructor', 'new']

export function anyControl(random: Random): string {
  const [type, members] = random.pick(Object.entries(MESSAGES))
  const message: [string, unknown][] = Object.entries({ type, ...members })
  for (let left = random.int(3); left > 0; left--) {
    const at = random.int(message.length)
    if (random.oneIn(3)) message.splice(at, 1)
    else if (random.oneIn(2)) message.push([random.pick(NAMES), random.pick(VALUES)])
    else message[at] = [message[at]?.[0] ?? 'type', random.pick(VALUES)]
    if (message.length === 0) break
  }
  // Written member by member, since duplicate names and `__proto__` are possible on the wire.
  return `{${message.map(([name, value]) => `${JSON.stringify(name)}:${JSON.stringify(value)}`).join(',')}}`
}

export const control: FuzzTarget = {
  name: 'control',

  generate(random) {
    const text = Buffer.from(anyControl(random))
    return random.oneIn(2) ? text : mutate(text, random, ['"type"', '"reset"', '{', '[', '"', '\\u0000', '1e999', ','])
  },

  execute(input) {
    const text = input.toString('utf8')
    const unknown = { types: 0, members: 0 }
    const reset = parseReset(text)
    if (reset !== undefined) holds(typeof reset.stream === 'number', 'a reset names a stream')
    const message = ourErrorOr(() => parseControl(text, unknown))
    if (message === undefined || message instanceof Error) return
    holds(Buffer.byteLength(text) <= MAX_CONTROL_BYTES, 'no longer than allowed')
    holds(Object.getPrototypeOf(message) === Object.prototype, 'a plain object')
    const again = { types: 0, members: 0 }
    const sent = JSON.stringify(message)
    // Numbers that JSON cannot represent are in members that nobody reads.
    same(parseControl(sent, again), JSON.parse(sent), 'decode(encode(x)) = x')
    same(again, { types: 0, members: 0 }, 'what was unknown is left out')
  },
}
