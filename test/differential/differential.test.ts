/** Requests that the edge accepts mean the same to nginx, Apache and Node behind it. */
import { randomBytes } from 'node:crypto'
import { describe, expect, it, vi } from 'vitest'
import { long, needs, short } from '../support/needs.ts'
import { compareHttp1, compareHttp2, type Options, type Tally } from './compare.ts'
import { startApache, startNginx, startNode, type Upstream } from './programs.ts'

/** The published count, and what fits into a normal run. */
const INPUTS = long ? 100_000 : short ? 1_000 : 5_000
/** New inputs in the long run; a normal run repeats its own, so that a finding is due to the change. */
const seed = process.env.SALLYPORT_DIFFERENTIAL_SEED ?? (long ? randomBytes(4).toString('hex') : '399c5835')
const options: Options = { seed, inputs: INPUTS, workers: 4 }

vi.setConfig({ testTimeout: 1_200_000 })

async function against(start: () => Promise<Upstream>, compare: typeof compareHttp1, share = 1): Promise<Tally> {
  const upstream = await start()
  try {
    const tally = await compare(upstream, { ...options, inputs: Math.ceil(INPUTS * share) })
    const { accepted, refused, sameConnection } = tally
    const told = `${accepted} requests accepted, refused by it: ${JSON.stringify(refused)}`
    console.log(`${upstream.name}: seed ${seed}, ${told}, ${sameConnection} canaries on the same connection`)
    return tally
  } finally {
    await upstream.stop()
  }
}

function expectAgreement(tally: Tally, inputs: number): void {
  expect(tally.disagreements).toEqual([])
  // A run in which little gets through, or connections are not kept, would show nothing.
  expect(tally.accepted).toBeGreaterThan(inputs / 10)
  expect(tally.sameConnection).toBeGreaterThan(inputs / 10)
  const refused = Object.values(tally.refused).reduce((sum, count) => sum + count, 0)
  expect(refused).toBeLessThan(tally.accepted / 2)
}

describe(`no disagreement about the end, method, target and host of a message (${INPUTS} inputs)`, () => {
  it('Node', async () => expectAgreement(await against(startNode, compareHttp1), INPUTS))

  it.runIf(needs('nginx'))('nginx', async () => expectAgreement(await against(startNginx, compareHttp1), INPUTS))

  it.runIf(needs('apache'))('Apache', async () => expectAgreement(await against(startApache, compareHttp1), INPUTS))
})

describe(`the same for heads that arrived over HTTP/2 (${INPUTS / 5} inputs)`, () => {
  const run = async (start: () => Promise<Upstream>) =>
    expectAgreement(await against(start, compareHttp2, 1 / 5), INPUTS / 5)

  it('Node', () => run(startNode))

  it.runIf(needs('nginx'))('nginx', () => run(startNginx))

  it.runIf(needs('apache'))('Apache', () => run(startApache))
})
