/** What the admin listener of a client shows of its inspector. */
import type { InspectedExchange, Inspector, ReplayOptions } from '../../client/index.ts'
import { hook } from '../../protocol/base/guard.ts'
import { isRecord } from '../../protocol/base/is-record.ts'
import { noLogger } from '../../protocol/base/log.ts'
import type { AdminView } from './admin.ts'

/** Enough for a body of 128 KiB in JSON with every byte escaped, and the rest. */
const MAX_REPLAY_BYTES = 1024 * 1024

/** Empty without an inspector. */
export function inspection(
  inspector: Inspector | undefined,
): Pick<AdminView, 'inspector' | 'views' | 'streams' | 'actions'> {
  if (inspector === undefined) return {}
  return {
    inspector,
    views: {
      '/inspect': () => ({ ...inspector.stats(), list: inspector.list() }),
      '/inspect/': query => inspector.get(query.get('id') ?? ''),
    },
    streams: {
      '/inspect/events': send => {
        const listener = hook('an event', (exchange: InspectedExchange) => send('exchange', exchange), noLogger)
        return inspector.subscribe(listener)
      },
    },
    actions: {
      '/inspect/replay': {
        maxBodyBytes: MAX_REPLAY_BYTES,
        run: async ({ id, ...options }) => {
          const { replayOf, status, code, ...replay } = await inspector.replay(String(id), replayOptions(options))
          return { id: replay.id, replayOf, status, code }
        },
      },
    },
  }
}

/** Throws TypeError for invalid options. */
function replayOptions({ edits = {}, unsafe = false, ...others }: Record<string, unknown>): ReplayOptions {
  const [unknown] = Object.keys(others)
  if (unknown !== undefined) throw new TypeError(`there is no option ${JSON.stringify(unknown)}`)
  if (typeof unsafe !== 'boolean') throw new TypeError('unsafe must be true or false')
  if (!isRecord(edits)) throw new TypeError('edits must be an object')
  const { method, path, headers, body, ...rest } = edits
  const [other] = Object.keys(rest)
  if (other !== undefined) throw new TypeError(`${JSON.stringify(other)} cannot be edited`)
  if (headers !== undefined && !isRecord(headers)) throw new TypeError('edits.headers must be an object')
  return {
    unsafe,
    edits: {
      ...{ method: text('method', method), path: text('path', path), body: text('body', body) },
      headers: headers as Record<string, string | null> | undefined,
    },
  }
}

function text(name: string, value: unknown): string | undefined {
  if (value === undefined || typeof value === 'string') return value
  throw new TypeError(`edits.${name} is text`)
}
