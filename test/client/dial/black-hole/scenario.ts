/**
 * A pair in its own network namespace whose control connections fall into a black hole: no packet passes in either
 * direction, and none is refused. Prints as JSON what happened, and when.
 *
 *     unshare --net node test/client/dial/black-hole/scenario.ts HOLE_MS
 */
import { execFileSync } from 'node:child_process'
import { setTimeout } from 'node:timers/promises'
import { program } from '../../../support/needs.ts'
import { startPair } from '../../../support/pair.ts'

const holeMs = Number(process.argv[2])
const PINGS = { pingIntervalMs: 2000, pingTimeoutMs: 3000 }
const ASK_MS = 50

execFileSync(program('ip'), ['link', 'set', 'lo', 'up'])
const pair = await startPair({
  target: () => new Response('fine'),
  server: { limits: PINGS },
  client: { limits: PINGS },
})
const { port } = pair.server.controlAddress!
const before = await answered()
const noticed: { client?: number; server?: number } = {}
const began = performance.now()
pair.tunnel.on('disconnected', () => {
  noticed.client ??= performance.now() - began
})
pair.server.on('sessionEnded', () => {
  noticed.server ??= performance.now() - began
})
blackHole('-A')
await setTimeout(holeMs)
const isReadyInIt = pair.tunnel.ready()
blackHole('-D')
const returned = performance.now()
while (!(await answered())) await setTimeout(ASK_MS)
const backMs = performance.now() - returned
await pair.stop()
process.stdout.write(`${JSON.stringify({ before, noticed, isReadyInIt, backMs })}\n`)

async function answered(): Promise<boolean> {
  try {
    const response = await pair.server.fetch('demo', 'https://demo.tunnels.localhost/')
    return (await response.text()) === 'fine'
  } catch {
    return false
  }
}

/** On loopback, both directions arrive here. */
function blackHole(action: '-A' | '-D'): void {
  for (const end of ['--dport', '--sport']) {
    execFileSync(program('iptables'), [action, 'INPUT', '-p', 'tcp', end, String(port), '-j', 'DROP'])
  }
}
