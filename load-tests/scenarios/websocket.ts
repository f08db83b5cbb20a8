import type { Section } from '../lib/section.ts'
import { type Setup, withPath } from '../setups/setup.ts'
import { PATHS } from '../upstream/service.ts'
import type { WebSocketResult, WebSocketTask } from '../workers/websocket.ts'
import { type Bench, bars, isOnV8, lengthMs, limitNote, measureSetups, type Scenario, UNIT } from './scenario.ts'

const SIZES = { smoke: [64], quick: [64], full: [64, 16 * 1024] } as const
const CONNECTIONS = 16
const IN_FLIGHT = 8

/** Echoes: as many as possible, and the round trip of a single one. */
export const webSocket: Scenario = {
  name: 'websocket',
  title: 'WebSocket echoes of 64 B and 16 KB: messages per second, round trip',
  async run(bench) {
    const sections: Section[] = []
    for (const [i, bytes] of SIZES[bench.mode].entries()) sections.push(await ofSize(bench, bytes, i === 0))
    return sections
  },
}

async function ofSize(bench: Bench, messageBytes: number, warmUp: boolean): Promise<Section> {
  const setups = (await bench.setups.some()).filter(setup => !setup.http2)
  const size = messageBytes < 1024 ? `${messageBytes} B` : `${messageBytes / 1024} KB`
  const once = async (setup: Setup, isWarmUp: boolean) => {
    const place = withPath(setup, PATHS.echo)
    const durationMs = lengthMs(bench, isWarmUp)
    const echo = (connections: number, inFlight: number, ms: number) =>
      bench.generators.ask<WebSocketTask, WebSocketResult>('websocket', {
        ...place,
        ...{ connections, inFlight, messageBytes, durationMs: ms },
      })
    const alone = await echo(1, 1, durationMs / 2)
    const many = await echo(CONNECTIONS, IN_FLIGHT, durationMs)
    return {
      figures: {
        ...{ perSecond: many.perSecond, generatorCpu: many.generatorCpu },
        ...{ p50: alone.p50, p99: alone.p99, loadedP99: many.p99 },
      },
      wrong: alone.wrong + many.wrong,
      units: alone.messages + many.messages,
    }
  }
  const measured = await measureSetups(bench, `websocket, ${size}`, setups, once, { warmUp: warmUp && isOnV8 })
  return {
    name: `websocket-${messageBytes}`,
    title: `WebSocket echoes of ${size}`,
    note:
      `Messages per second: ${CONNECTIONS} connections with ${IN_FLIGHT} messages in flight each; every echo is ` +
      `compared. Round trip: one connection, one message at a time. Closed loops.${limitNote(measured)}`,
    measured,
    columns: [
      { title: 'messages/s', figure: 'perSecond' },
      { title: 'of nginx', figure: 'perSecond', over: UNIT },
      { title: 'CPU us', figure: 'cpu' },
      { title: 'x nginx', figure: 'cpu', over: UNIT },
      { title: 'alone p50 ms', figure: 'p50' },
      { title: 'x nginx', figure: 'p50', over: UNIT },
      { title: 'p99 ms', figure: 'p99' },
      { title: 'loaded p99 ms', figure: 'loadedP99' },
    ],
    charts: [
      { title: `WebSocket echoes of ${size}`, unit: 'messages/s, more is better', bars: bars(measured, 'perSecond') },
    ],
  }
}
