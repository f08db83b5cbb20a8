/** The bridge to an embedder's OpenTelemetry, on the real API in front of a test's provider. */
import * as api from '@opentelemetry/api'
import { describe, expect, test } from 'vitest'
import { LINES_PER_PERIOD } from '../../protocol/base/paced-logger.ts'
import { openTelemetry } from '../../tracing/index.ts'

const PARENT = { traceId: '0af7651916cd43dd8448eb211c80319c', spanId: 'b7ad6b7169203331', sampled: true, state: 'a=1' }

interface Begun {
  readonly name: string
  readonly kind: api.SpanKind | undefined
  readonly parent: string | undefined
  readonly state: string | undefined
  readonly said: unknown[]
}

/** Ids in order, and what each span is told. */
function provider(begun: Begun[], flags = api.TraceFlags.SAMPLED): api.Tracer {
  return {
    startSpan(name, options, context) {
      const above = context && api.trace.getSpanContext(context)
      const said: unknown[] = []
      const own: api.SpanContext = {
        traceId: above?.traceId ?? 'e'.repeat(32),
        spanId: String(begun.length + 1).padStart(16, '0'),
        traceFlags: flags,
        ...(above?.traceState && { traceState: above.traceState }),
      }
      begun.push({ name, kind: options?.kind, parent: above?.spanId, state: above?.traceState?.serialize(), said })
      const span = {
        spanContext: () => own,
        setAttribute: (key: string, value: unknown) => {
          said.push([key, value])
          return span
        },
        setStatus: (status: api.SpanStatus) => {
          said.push(status)
          return span
        },
        updateName: (text: string) => {
          said.push(text)
          return span
        },
        addLink: (link: api.Link) => {
          said.push(link.context.spanId)
          return span
        },
        end: () => void said.push('end'),
      }
      return span as unknown as api.Span
    },
    startActiveSpan: () => {
      throw new Error('not used')
    },
  }
}

describe('openTelemetry', () => {
  test('spans, their children and their ends are those of the tracer', () => {
    const begun: Begun[] = []
    const span = openTelemetry(api, provider(begun)).start('GET', 'server', PARENT)
    expect(span.context).toEqual({ ...PARENT, spanId: '0000000000000001' })
    const child = span.child('tunnel', 'client')
    child.set('a', 1)
    child.rename('other')
    child.link(PARENT)
    child.end('session-lost')
    span.end()
    expect(begun).toEqual([
      { name: 'GET', kind: api.SpanKind.SERVER, parent: PARENT.spanId, state: 'a=1', said: ['end'] },
      {
        ...{ name: 'tunnel', kind: api.SpanKind.CLIENT, parent: '0000000000000001', state: 'a=1' },
        said: [
          ['a', 1],
          'other',
          PARENT.spanId,
          ['error.type', 'session-lost'],
          { code: api.SpanStatusCode.ERROR },
          'end',
        ],
      },
    ])
  })

  test('what its sampler drops is passed on as not sampled', () => {
    const { context } = openTelemetry(api, provider([], api.TraceFlags.NONE)).start('GET', 'server', undefined)
    expect(context).toMatchObject({ sampled: false, traceId: 'e'.repeat(32) })
  })

  test('a tracer that throws costs its spans, and a log line', () => {
    const lines: string[] = []
    const say = (_fields: object, message: string) => void lines.push(message)
    const broken = {
      startSpan: () => {
        throw new Error('broken')
      },
    } as unknown as api.Tracer
    const span = openTelemetry(api, broken, { debug: say, info: say, warn: say, error: say }).start(
      'a',
      'server',
      undefined,
    )
    span.child('b', 'client').end()
    span.end('x')
    expect(span.context.sampled).toBe(false)
    expect(lines).toContain('OpenTelemetry threw')
    for (let i = 0; i < 1000; i++) span.child('b', 'client')
    expect(lines).toHaveLength(LINES_PER_PERIOD)
  })

  test('a logger that throws costs nothing more', () => {
    const thrown = () => {
      throw new Error('broken')
    }
    const broken = { startSpan: thrown } as unknown as api.Tracer
    const logger = { debug: thrown, info: thrown, warn: thrown, error: thrown }
    expect(openTelemetry(api, broken, logger).start('a', 'server', undefined).context.sampled).toBe(false)
  })
})
