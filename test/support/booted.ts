/**
 * A machine of its own, as far as one kernel goes: systemd as process 1 in namespaces, over a copy-on-write view of this
 * machine's files. `/usr/local/bin` has the Node that runs here and the command of this checkout.
 */
import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmdirSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, relative, resolve } from 'node:path'
import { promisify } from 'node:util'
import { until } from './until.ts'

const run = promisify(execFile)
const CHECKOUT = resolve(import.meta.dirname, '../..')
/** Where the checkout is in the machine. */
const INSTALLED = '/opt/sallyport'

export interface Booted {
  /** A shell's answer; it throws if the last command fails. */
  readonly sh: (script: string) => Promise<string>
  /** Waits until a shell's last command succeeds. */
  readonly comes: (script: string) => Promise<void>
  /** Of its first process, by which its namespaces are entered. */
  readonly pid: number
  readonly stop: () => Promise<void>
}

const BOOT = `
set -e
mount --make-rprivate /
mount -t tmpfs tmpfs "$SCRATCH"
mkdir "$SCRATCH/upper" "$SCRATCH/work" "$SCRATCH/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$SCRATCH/upper,workdir=$SCRATCH/work" "$SCRATCH/root"
cd "$SCRATCH/root"
mkdir -p opt/sallyport && mount --bind "$CHECKOUT" opt/sallyport
ln -sfn "$NODE" usr/local/bin/node && ln -sfn /opt/sallyport/bin/sallyport.js usr/local/bin/sallyport
mount -t proc proc proc
mount -t sysfs sysfs sys && mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs tmpfs dev
for device in null zero full random urandom tty; do touch dev/$device; mount --bind /dev/$device dev/$device; done
mkdir dev/pts dev/shm && mount -t devpts devpts dev/pts -o newinstance,ptmxmode=0666
ln -s pts/ptmx dev/ptmx && ln -s /proc/self/fd dev/fd
mount -t tmpfs tmpfs run
mount -t tmpfs tmpfs tmp
printf '[Unit]\\nWants=systemd-journald.service\\n' > etc/systemd/system/test.target
ip link set lo up
pivot_root . mnt
umount --lazy /mnt
export container=test
exec /lib/systemd/systemd --system --unit=test.target --show-status=no
`

export async function boot(name: string): Promise<Booted> {
  const scratch = mkdtempSync(join(tmpdir(), `${name}-`))
  const group = join(unifiedGroups(), `${name}-${process.pid}`)
  mkdirSync(group)
  const namespaces = ['--mount', '--pid', '--uts', '--ipc', '--net', '--cgroup', '--fork', '--kill-child']
  const env = {
    PATH: `/usr/sbin:${process.env.PATH}`,
    SCRATCH: scratch,
    CHECKOUT,
    NODE: join(INSTALLED, relative(CHECKOUT, process.execPath)),
  }
  // It enters its control group before it has a namespace of them, whose root that is.
  const start = `echo $$ > ${group}/cgroup.procs && exec unshare ${namespaces.join(' ')} sh -c "$BOOT"`
  const child = spawn('sh', ['-c', start], { env: { ...env, BOOT }, stdio: ['ignore', 'ignore', 'pipe'] })
  let output = ''
  child.stderr.setEncoding('utf8').on('data', text => {
    output += text
  })
  const stop = async () => {
    await end(child)
    await until(() => isGone(group), `${group} is empty`)
    rmSync(scratch, { recursive: true })
  }
  try {
    const pid = await firstProcess(child, () => output)
    const sh = async (script: string) => {
      const enter = ['--target', `${pid}`, '--all', '--wdns=/opt/sallyport/deploy/systemd', '/bin/sh', '-ec', script]
      const path = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'
      return (await run('nsenter', enter, { env: { PATH: path } })).stdout
    }
    const succeeds = (script: string) =>
      sh(script).then(
        () => true,
        () => false,
      )
    const comes = (script: string) => until(async () => child.exitCode !== null || (await succeeds(script)), script)
    await comes('systemctl is-active systemd-journald')
    if (child.exitCode !== null) throw new Error(output)
    return { sh, comes, pid, stop }
  } catch (error) {
    await stop()
    throw error
  }
}

/** A cable between two machines, whose ends get these addresses. */
export async function connectMachines(one: Booted, other: Booted, addresses: readonly [string, string]): Promise<void> {
  const [here, there] = [`b${one.pid}`, `b${other.pid}`]
  const ends = [
    'link',
    'add',
    here,
    'netns',
    `${one.pid}`,
    'type',
    'veth',
    'peer',
    'name',
    there,
    'netns',
    `${other.pid}`,
  ]
  await run('ip', ends)
  await one.sh(`ip address add ${addresses[0]}/24 dev ${here} && ip link set ${here} up`)
  await other.sh(`ip address add ${addresses[1]}/24 dev ${there} && ip link set ${there} up`)
}

/** Copies a file from one to the other, with its owner's rights alone or everybody's. */
export function carry(from: Booted, to: Booted, path: string, mode: number): void {
  writeFileSync(`/proc/${to.pid}/root${path}`, readFileSync(`/proc/${from.pid}/root${path}`), { mode })
}

/** Where the second version of control groups is mounted. */
function unifiedGroups(): string {
  const mounts = readFileSync('/proc/mounts', 'utf8')
  return / (\S+) cgroup2 /.exec(mounts)![1]!
}

/** The only child of `unshare` is the machine's first process, once it is systemd. */
async function firstProcess(child: ChildProcess, output: () => string): Promise<number> {
  const find = () => {
    const pid = readFileSync(`/proc/${child.pid}/task/${child.pid}/children`, 'utf8').trim()
    return pid !== '' && readFileSync(`/proc/${pid}/comm`, 'utf8').trim() === 'systemd' ? Number(pid) : undefined
  }
  await until(() => child.exitCode !== null || find() !== undefined, 'systemd is process 1')
  if (child.exitCode !== null) throw new Error(output())
  return find()!
}

/** Removes a control group and those in it, which the kernel allows once their processes have gone. */
function isGone(group: string): boolean {
  try {
    for (const entry of readdirSync(group, { withFileTypes: true })) {
      if (entry.isDirectory() && !isGone(join(group, entry.name))) return false
    }
    rmdirSync(group)
    return true
  } catch {
    return false
  }
}

async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return
  const ended = once(child, 'exit')
  child.kill('SIGKILL')
  await ended
}
