// @module-tag slow
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { long, needs } from '../../support/needs.ts'

interface Told {
  readonly before: boolean
  readonly noticed: { readonly client: number; readonly server: number }
  readonly isReadyInIt: boolean
  readonly backMs: number
}

const SCENARIO = join(import.meta.dirname, 'black-hole/scenario.ts')

async function fallInto(holeMs: number): Promise<Told> {
  const child = spawn('unshare', ['--net', process.execPath, SCENARIO, String(holeMs)])
  let out = ''
  let problems = ''
  child.stdout.on('data', chunk => {
    out += chunk
  })
  child.stderr.on('data', chunk => {
    problems += chunk
  })
  const [code] = await once(child, 'close')
  expect(problems).toBe('')
  expect(code).toBe(0)
  return JSON.parse(out) as Told
}

describe.runIf(needs('netns', 'iptables'))('a path that swallows every packet', () => {
  test.each(long ? [30_000, 600_000] : [9000])(
    'for %d ms: both ends notice, and traffic flows afterwards',
    {
      timeout: 660_000,
    },
    async holeMs => {
      const { before, noticed, isReadyInIt, backMs } = await fallInto(holeMs)
      expect(before).toBe(true)
      expect(noticed).toEqual({ client: expect.any(Number), server: expect.any(Number) })
      expect(isReadyInIt).toBe(false)
      const times = `${Math.round(noticed.client)} ms at the client, ${Math.round(noticed.server)} ms at the server`
      console.log(
        `black hole of ${holeMs / 1000} s at ping 2 s: noticed after ${times}; traffic ${Math.round(backMs)} ms later`,
      )
    },
  )
})
