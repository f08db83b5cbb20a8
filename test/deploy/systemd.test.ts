/** K1: what systemd is told to keep running it keeps running, however often it fails at first. */
import { globSync, readFileSync } from 'node:fs'
import { resolve } from 'node:path'
import { expect, test } from 'vitest'

const ROOT = resolve(import.meta.dirname, '../..')

/** `[Section]` and `Name=value` lines; of a name that comes twice, the last. */
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

test.each(lasting)('K1 %s is started again however often it fails', file => {
  const { Unit, Service } = readUnit(file)
  // By default five starts within ten seconds leave a unit dead: where a file or a name is not there yet, for example.
  expect([Service!.Restart, Service!.RestartSec, Unit!.StartLimitIntervalSec]).toEqual(['always', '1', '0'])
})
