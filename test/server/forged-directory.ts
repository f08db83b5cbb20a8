import type { RuntimeState } from '../../server/directory/directory.ts'
import { MemoryDirectory } from '../../server/directory/memory.ts'

/** Somebody else can write to it. */
export class ForgedDirectory extends MemoryDirectory {
  #forged: [name: string, state: RuntimeState] | undefined

  /** From now on the host belongs to that runtime. */
  says(host: string, runtime: string): void {
    const instances = new Map([[runtime, { epoch: 9, replicas: ['elsewhere'] }]])
    this.#forged = [host, { runtime: host, epoch: 9, active: runtime, instances, version: 9, changedMs: 0 }]
  }

  override find(name: string): RuntimeState | undefined {
    return this.#forged?.[0] === name ? this.#forged[1] : super.find(name)
  }
}
