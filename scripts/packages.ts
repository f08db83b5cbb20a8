/** Installs Debian packages for suites that need them: as root, without prompts, and without starting services. */
import { spawnSync } from 'node:child_process'
import { chmodSync, existsSync, rmSync, writeFileSync } from 'node:fs'

const POLICY = '/usr/sbin/policy-rc.d'
const APT = { env: { ...process.env, DEBIAN_FRONTEND: 'noninteractive' }, encoding: 'utf8' } as const

/** Installs `packages` if this is Debian and we are root. Otherwise does nothing. */
export function installPackages(packages: string[]): void {
  if (process.getuid?.() !== 0 || !existsSync('/etc/debian_version')) return
  console.log(`installing ${packages.join(' ')} with apt-get for the suites that need them; no service is started`)
  withoutServices(() => {
    spawnSync('apt-get', ['update', '-qq'], { ...APT, stdio: 'ignore' })
    const args = ['install', '-y', '-qq', '--no-install-recommends', ...packages]
    const done = spawnSync('apt-get', args, { ...APT, stdio: ['ignore', 'ignore', 'pipe'] })
    if (done.status !== 0) console.log(`apt-get failed: ${lastLine(done.stderr) || done.error?.message}`)
  })
}

/** Debian asks this script whether a service may start, and 101 means no. An existing script is left alone. */
function withoutServices(work: () => void): void {
  if (existsSync(POLICY)) {
    work()
    return
  }
  writeFileSync(POLICY, '#!/bin/sh\nexit 101\n')
  chmodSync(POLICY, 0o755)
  try {
    work()
  } finally {
    rmSync(POLICY, { force: true })
  }
}

function lastLine(text: string | null): string {
  return (text ?? '').trim().split('\n').at(-1) ?? ''
}
