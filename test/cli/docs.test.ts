import { globSync, readFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { flagsOf } from '../../cli/catalog/flags.ts'
import { COMMANDS } from '../../cli/commands.ts'
import { COMPONENTS, everySettingName } from '../../cli/config/components.ts'
import { environmentName } from '../../cli/config/setting.ts'
import { readConfigFile } from '../../cli/config/yaml-file.ts'
import { ERRORS } from '../../protocol/base/errors.ts'
import { withErrorTable, withSettingTables } from '../../scripts/docs/tables.ts'

const read = (path: string) => readFileSync(path, 'utf8')

describe('made from code (npm run docs)', () => {
  test('the settings of docs/configuration.md', () => {
    const document = read('docs/configuration.md')
    expect(withSettingTables(document)).toBe(document)
    expect(withSettingTables(document.replaceAll('| `--domain` |', '| `--domian` |'))).toBe(document)
  })

  test('the codes of docs/errors.md', () => {
    const document = read('docs/errors.md')
    expect(withErrorTable(document)).toBe(document)
    expect(withErrorTable(document.replace('| 502 |', '| 599 |'))).toBe(document)
  })
})

test('docs/errors.md says for every code what to look at', () => {
  const rows = [
    ...read('docs/errors.md')
      .split('## What to look at\n')[1]!
      .matchAll(/^\| (`.*?) \|/gm),
  ]
  const codes = rows.flatMap(([, cell]) => cell!.replaceAll('`', '').split(', '))
  expect(codes.sort()).toEqual(Object.keys(ERRORS).sort())
})

describe('what documents and manifests name exists', () => {
  const flags = new Set(COMMANDS.flatMap(command => Object.keys(flagsOf(command))))
  const variables = new Set([...[...everySettingName()].map(environmentName), 'SALLYPORT_CONFIG', 'SALLYPORT_BIN'])
  const PROMETHEUS = new Set(['config.file', 'storage.tsdb.path'])
  const files = [
    ...globSync('*.md'),
    ...globSync('docs/*.md'),
    ...globSync('deploy/**/*.*'),
    ...globSync('*/README.md'),
  ]

  test.each(files)('%s', file => {
    const text = read(file)
    // Compose takes these from its .env, and no process of ours reads them.
    const filled = new Set(
      [...read('deploy/compose/compose.yaml').matchAll(/\$\{(SALLYPORT_[A-Z_]+)/g)].map(match => match[1]!),
    )
    // A flag with a dot is ours, and so is any in a line of our command.
    const dotted = [...text.matchAll(/(?<![\w-])--([a-z-]+(?:\.[a-z-]+)+)/g)].map(match => match[1]!)
    expect(dotted.filter(name => !flags.has(name) && !PROMETHEUS.has(name))).toEqual([])
    const named = [...text.matchAll(/SALLYPORT_[A-Z_]*[A-Z]/g)].map(match => match[0])
    expect(named.filter(name => !variables.has(name) && !filled.has(name))).toEqual([])
  })

  test.each(['server', 'client'] as const)('deploy/systemd/%s.yaml', async component => {
    const values = await readConfigFile(`deploy/systemd/${component}.yaml`, COMPONENTS[component])
    for (const [name, { value }] of values) {
      const setting = COMPONENTS[component][name as 'admin.listen']
      expect(() => setting.kind.read(value)).not.toThrow()
    }
  })
})
