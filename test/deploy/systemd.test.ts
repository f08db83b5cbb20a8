/** K1: systemd keeps running what it should, however often it fails at first. */
import { execFileSync } from 'node:child_process'
import { globSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { decodeJwt } from 'jose'
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

test('K1 the timer goes by the wall clock, as tokens expire, so that no token is old after the machine was suspended', () => {
  const { Timer } = readUnit('deploy/systemd/sallyport-token.timer')
  expect(Timer).toEqual({ OnBootSec: '0', OnCalendar: '*:0/20', AccuracySec: '10s' })
})

test('K1 the timer makes a token with the flags that the unit names', () => {
  const folder = mkdtempSync(join(tmpdir(), 'sallyport-unit-'))
  const command = `'${process.execPath}' '${resolve(ROOT, 'bin/sallyport.js')}'`
  const { ExecStart } = readUnit('deploy/systemd/sallyport-token.service').Service!
  const script = /'(.*)'$/
    .exec(ExecStart!)![1]!
    .replaceAll('/usr/local/bin/sallyport', command)
    .replaceAll('/var/lib/sallyport', folder)
    .replaceAll('/etc/sallyport/keys', folder)
    .replace('chown sallyport:', 'test -f')
  try {
    execFileSync('/bin/sh', ['-ec', `${command} keys create --out ${folder}`], { stdio: 'ignore' })
    const env = { RUNTIME: 'demo', FLAGS: '--host a.example --host b.example' }
    execFileSync('/bin/sh', ['-ec', script], { env, stdio: 'ignore' })
    const claims = decodeJwt(readFileSync(join(folder, 'token'), 'utf8').trim())
    expect(claims).toMatchObject({ sub: 'demo', sallyport_hosts: ['a.example', 'b.example'] })
  } finally {
    rmSync(folder, { recursive: true })
  }
})

test('a certificate of certbot for other names does not replace that of the domain', () => {
  const folder = mkdtempSync(join(tmpdir(), 'sallyport-certbot-'))
  const readme = readFileSync(resolve(ROOT, 'deploy/systemd/README.md'), 'utf8')
  const hook = /(?<=^ {4}#!\/bin\/sh -e\n)(?: {4}.*\n)+/m
    .exec(readme)![0]
    .replaceAll('/etc/', `${folder}/`)
    .replace('-g sallyport', '')
  const names = ['tunnels.example.com', 'hooks.customer.example']
  try {
    mkdirSync(join(folder, 'sallyport/certs'), { recursive: true })
    for (const name of names) {
      const lineage = join(folder, 'letsencrypt/live', name)
      mkdirSync(lineage, { recursive: true })
      for (const file of ['privkey.pem', 'fullchain.pem']) writeFileSync(join(lineage, file), name)
      execFileSync('/bin/sh', ['-ec', hook], { env: { ...process.env, RENEWED_LINEAGE: lineage } })
    }
    const installed = ['server.pem', 'server-key.pem'].map(name =>
      readFileSync(join(folder, 'sallyport/certs', name), 'utf8'),
    )
    expect(installed).toEqual([names[0], names[0]])
  } finally {
    rmSync(folder, { recursive: true })
  }
})

test('another runtime has nothing of the first, whatever that is called', () => {
  const folder = mkdtempSync(join(tmpdir(), 'sallyport-copies-'))
  const readme = readFileSync(resolve(ROOT, 'deploy/systemd/README.md'), 'utf8')
  const copies = readme
    .match(/^ {4}(?:sed|cp) .*shop.*$/gm)!
    .join('\n')
    .replaceAll('/etc/sallyport', folder)
  const edit = (file: string, ...changes: [string, string][]) => {
    const text = readFileSync(resolve(ROOT, 'deploy/systemd', file), 'utf8')
    writeFileSync(
      join(folder, file),
      changes.reduce((edited, [from, to]) => edited.replace(from, to), text),
    )
  }
  try {
    edit('sallyport-client.service')
    edit('sallyport-token.service', ['RUNTIME=demo', 'RUNTIME=prod'], ['"FLAGS="', '"FLAGS=--host a.example"'])
    edit('sallyport-token.timer')
    edit('client.yaml', ['127.0.0.1:3000', '10.0.0.7:8080'])
    execFileSync('/bin/sh', ['-ec', copies], { cwd: folder })
    const unit = readFileSync(join(folder, 'sallyport-token-shop.service'), 'utf8')
    expect(unit).toContain('\nEnvironment=RUNTIME=shop\n')
    expect(unit).toContain('\nEnvironment="FLAGS="\n')
    expect(readFileSync(join(folder, 'shop.yaml'), 'utf8')).toContain('\ntarget: http://127.0.0.1:4000\n')
  } finally {
    rmSync(folder, { recursive: true })
  }
})
