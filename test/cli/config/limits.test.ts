/** The library accepts what a flag accepts, with the same default; and each limit is read by what enforces it. */
import { globSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { clientSettings } from '../../../cli/config/client.ts'
import { serverSettings } from '../../../cli/config/server.ts'
import { limitOptions, type Settings } from '../../../cli/config/setting.ts'
import { CLIENT_SESSION_LIMITS, CONNECT_LIMITS } from '../../../client/limits.ts'
import { defaultsOf, type Limit, type Limits, rangeOf, readLimit, resolveLimits } from '../../../protocol/base/limit.ts'
import { LIMITS } from '../../../scripts/docs/limits.ts'
import { DRAIN_TIMES, HOLD_LIMITS, LEASE, SERVER_LIMITS } from '../../../server/limits.ts'

const COMMANDS: [string, Settings, Limits[]][] = [
  ['server', serverSettings, [LEASE, DRAIN_TIMES, HOLD_LIMITS, SERVER_LIMITS]],
  ['client', clientSettings, [CONNECT_LIMITS, CLIENT_SESSION_LIMITS]],
]

describe.each(COMMANDS)('sallyport %s', (_, settings, schemas) => {
  const rows = schemas.flatMap(schema =>
    Object.entries(schema).flatMap(([name, limit]): [string, string, Limit, Limits][] =>
      limit.flag === undefined ? [] : [[limit.flag, name, limit, schema]],
    ),
  )

  test.each(rows)('--%s is %s', (flag, name, limit, schema) => {
    const { kind, default: fallback } = settings[flag]!
    const { least, most } = rangeOf(limit)
    for (const text of [least, limit.default, most]) {
      const value = kind.read(text) as number
      expect(resolveLimits(schema, { [name]: value })[name]).toBe(value)
      expect(limitOptions({ [name]: limit }, { [flag]: value })).toEqual({ [name]: value })
    }
    expect(kind.read(fallback)).toBe(defaultsOf(schema)[name])
    const beyond = limit.kind === 'duration' ? `${readLimit(limit, most) + 1}ms` : `${readLimit(limit, most) + 1}`
    expect(() => kind.read(beyond)).toThrow(/^expected /)
  })
})

const ROOT = join(import.meta.dirname, '../../..')
const sources = globSync('{protocol,server,client,router,tracing}/**/*.ts', { cwd: ROOT }).map(file =>
  readFileSync(join(ROOT, file), 'utf8'),
)

describe.each(Object.entries(LIMITS))('%s', (_, schema) => {
  test.each(Object.keys(schema))('%s is read where it is enforced', name => {
    const reads = new RegExp(`\\.${name}\\b|\\{[^{}]*\\b${name}\\b(?!\\??:)[^{}]*\\} = `)
    expect(sources.some(text => reads.test(text))).toBe(true)
  })
})
