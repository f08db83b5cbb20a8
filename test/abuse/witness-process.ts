/** A well-behaved client and its callers, on their own runtime and in their own process. */
import { connect } from '../../client/index.ts'
import { Http1Caller } from '../support/caller-http1.ts'
import type { Measured, WitnessOptions } from './messages.ts'

/** Connections that send one request after another. */
const CALLERS = 4

let place: WitnessOptions
let measuring: Promise<Measured> | undefined
let asking = false

process.on('message', async (message: { start: WitnessOptions } | 'measure' | 'stop') => {
  if (message === 'measure') measuring = measure()
  else if (message === 'stop') {
    asking = false
    process.send?.(await measuring)
  } else {
    place = message.start
    await startWitness()
    process.send?.('ready')
  }
})

process.on('disconnect', () => process.exit())

async function startWitness(): Promise<void> {
  const url = `wss://127.0.0.1:${place.controlPort}`
  const target = (request: Request) => new Response(`good ${new URL(request.url).pathname}`)
  await connect({ url, token: () => place.token, ca: place.ca, proxy: '', target, connectTimeoutMs: 100_000 })
}

async function measure(): Promise<Measured> {
  asking = true
  const times: number[] = []
  let lost = 0
  const ask = async () => {
    let caller = await open()
    for (let n = 0; n === 0 || asking; n++) {
      const startedAt = performance.now()
      const path = `/${n}`
      try {
        const { status, content } = await caller.ask({ path })
        if (status !== 200 || content.toString() !== `good ${path}`) throw new Error(`${status}`)
        times.push(performance.now() - startedAt)
      } catch {
        lost++
        caller.close()
        caller = await open()
      }
    }
    caller.close()
  }
  await Promise.all(Array.from({ length: CALLERS }, ask))
  times.sort((a, b) => a - b)
  const at = (share: number) => times[Math.floor(times.length * share)] ?? 0
  return { requests: times.length + lost, lost, p50Ms: at(0.5), p99Ms: at(0.99) }
}

function open(): Promise<Http1Caller> {
  return Http1Caller.connect({ port: place.publicPort, authority: place.authority, ca: place.ca })
}
