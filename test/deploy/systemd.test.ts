/** K1: systemd keeps running what it should, however often it fails at first. */
import { globSync, readFileSync } from 'node:fs'
import { resolve } from 'node:path'
import { expect, test } from 'vitest'

const ROOT = resolve(import.meta.dirname, '../..')

/** `[Section]` and `Name=value` lines; the last one wins if a name appears twice. */
function readUnit(file: string): Record<string, Record<string, string>> {
  const unit: Record<string, Record<string, string>> = {}
  let section: Record<string, string> = {}
  for (const line of readFileSync(resolve(ROOT, file), 'utf8').split('\n')) {
    const [, header, name, value] = /^(?:\[(\w+)\]|(\w+)=(.*))$/.exec(line) ?? []
    if (header !== undefined) {
      section = {}
      unit[header] = section
    } else if (name !== undefined) {
      section[name] = value!
    }
  }
  return unit
}

const services = globSync('deploy/systemd/*.service', { cwd: ROOT }).sort()
const lasting = services.filter(file => readUnit(file).Service!.Type !== 'oneshot')

test('K1 the server and the client last', () => {
  expect(lasting.map(file => file.replaceAll('\\', '/'))).toEqual([
    'deploy/systemd/sallyport-client.service',
    'deploy/systemd/sallyport-server.service',
  ])
})

test.each(lasting)('K1 %s is restarted however often it fails', file => {
  const { Unit, Service } = readUnit(file)
  // By default, five starts within ten seconds leave a unit dead, for example when a file or a name does not exist yet.
  expect([Service!.Restart, Service!.RestartSec, Unit!.StartLimitIntervalSec]).toEqual(['always', '1', '0'])
})
