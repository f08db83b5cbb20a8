/**
 * Which trace a client follows where some servers of a directory trace and others do not: the edge decides, over any
 * hop.
 */
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { connect } from '../../client/index.ts'
import type { Server } from '../../server/server.ts'
import { call, DOMAIN, makeWorld, token } from '../server/fixture.ts'
import { needs } from '../support/needs.ts'
import { Spans, waterfall } from '../support/spans.ts'
import { until } from '../support/until.ts'
import { ReplicaGroup } from './fixture.ts'

const TRACE = '0af7651916cd43dd8448eb211c80319c'
const traceparent = `00-${TRACE}-b7ad6b7169203331-01`
const PROXY = '127.0.0.2'
const CALLERS = { proxy: PROXY, stranger: '127.0.0.1' }

describe.runIf(needs('redis'))('a request over a hop', () => {
  let replicas: ReplicaGroup
  const open: { close(options: { graceMs: number }): Promise<void> }[] = []
  beforeAll(async () => {
    replicas = await ReplicaGroup.start()
  })
  afterAll(() => replicas.stop())
  afterEach(async () => {
    await Promise.all(open.splice(0).map(tunnel => tunnel.close({ graceMs: 0 })))
    await replicas.clear()
  })

  async function addServer(spans: Spans | undefined): Promise<Server> {
    return replicas.add({ trustedProxies: [PROXY], ...(spans && { tracing: { tracer: spans.tracer } }) })
  }

  /** Says what its target received of traces. */
  async function addClient(server: Server, runtime: string, spans: Spans | 'server') {
    const told: (string | null)[] = []
    const { authority } = await makeWorld()
    const tunnel = await connect({
      url: `wss://127.0.0.1:${server.controlAddress!.port}`,
      ...{ token: await token(runtime), ca: authority.certificate, proxy: '' },
      tracing: spans === 'server' ? spans : { tracer: spans.tracer },
      target({ headers }: Request) {
        told.push(headers.get('traceparent'))
        return new Response('ok')
      },
    })
    open.push(tunnel)
    return told
  }

  const rows = [
    [false, false],
    [false, true],
    [true, false],
    [true, true],
  ]

  test.each(rows)('edge traces: %s, holder of the session: %s', async (edgeTraces, holderTraces) => {
    const [edge, holder, client] = [new Spans(), new Spans(), new Spans()]
    const near = await addServer(edgeTraces ? edge : undefined)
    const far = await addServer(holderTraces ? holder : undefined)
    const told = {
      own: await addClient(far, 'own', client),
      returned: await addClient(far, 'returned', 'server'),
    }
    const ask = async (runtime: string, localAddress: string) => {
      const { status } = await call(near, `${runtime}.${DOMAIN}`, '/', { headers: { traceparent }, localAddress })
      expect(status).toBe(200)
    }
    for (const runtime of ['own', 'returned']) {
      await ask(runtime, CALLERS.stranger)
      await ask(runtime, CALLERS.proxy)
    }
    expect(near.stats().peers!.sent).toBe(4)
    // What the holder is told is meant for the edge.
    expect(far.stats().spansReturned).toEqual(holderTraces ? { taken: 0, refused: 0 } : undefined)
    expect(holder.finished).toEqual([])
    if (!edgeTraces) {
      // As without tracing: it passes, and nobody trusts it.
      expect(told).toEqual({ own: [traceparent, traceparent], returned: [traceparent, traceparent] })
      expect([...edge.finished, ...client.finished]).toEqual([])
      return
    }
    await client.named('GET')
    if (holderTraces) await until(() => near.stats().spansReturned!.taken > 0)
    expect(near.stats().spansReturned).toEqual({ taken: holderTraces ? 1 : 0, refused: 0 })
    const spans = [...edge.finished, ...client.finished].filter(({ traceId }) => traceId === TRACE)
    expect(waterfall(spans, 'sallyport.runtime')).toEqual([
      'GET server sallyport.runtime=own',
      '  hop client',
      '    GET server sallyport.runtime=own',
      'GET server sallyport.runtime=returned',
      '  hop client',
      ...(holderTraces ? ['    GET server sallyport.runtime=returned'] : []),
    ])
    const hop = edge.finished.findLast(({ name }) => name === 'hop')!
    const returned = edge.finished.find(({ parentId }) => parentId === hop.spanId)
    expect(told).toEqual({
      own: [null, `00-${TRACE}-${client.finished[0]!.spanId}-01`],
      returned: [null, `00-${TRACE}-${(returned ?? hop).spanId}-01`],
    })
  })
})
