#pragma once

#include <sqlite3.h>

#include <cstddef>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <string_view>
#include <vector>

namespace doorbuster::db::testing {

/// The real file system, with a step that fails when it is told to. While one lives, every
/// connection that is opened goes through it.
class FaultyDisk {
 public:
  struct Fault {
    int write = SQLITE_FULL;        ///< what a failing write answers; half of its bytes arrive
    int sync = SQLITE_IOERR_FSYNC;  ///< what a failing fsync answers; it happened all the same
    int os_error = 0;               ///< errno beneath
    bool only_main = false;         ///< steps on the database file only, none on its log
  };

  FaultyDisk() {
    real_ = sqlite3_vfs_find("unix");
    vfs_ = *real_;
    vfs_.zName = "faulty";
    vfs_.pNext = nullptr;
    vfs_.szOsFile = static_cast<int>(sizeof(File)) + real_->szOsFile;
    vfs_.pAppData = this;
    vfs_.xOpen = &FaultyDisk::open;
    vfs_.xGetLastError = [](sqlite3_vfs* vfs, int size, char* text) {
      FaultyDisk& self = of(vfs);
      const std::lock_guard lock(self.mutex_);
      if (self.fired_) return self.fault_.os_error;
      return self.real_->xGetLastError(self.real_, size, text);
    };
    sqlite3_vfs_register(&vfs_, 1);
  }
  FaultyDisk(const FaultyDisk&) = delete;
  FaultyDisk& operator=(const FaultyDisk&) = delete;
  ~FaultyDisk() {
    sqlite3_vfs_unregister(&vfs_);
    sqlite3_vfs_register(real_, 1);
  }

  /// The n-th changing step from now (write, truncate, fsync) fails, and every later one, until
  /// heal().
  void fail_from(int n, Fault fault) {
    const std::lock_guard lock(mutex_);
    left_ = n;
    fault_ = fault;
    fired_ = false;
  }
  void heal() {
    const std::lock_guard lock(mutex_);
    left_ = 0;
    fired_ = false;
  }
  [[nodiscard]] bool fired() const {
    const std::lock_guard lock(mutex_);
    return fired_;
  }

  /// The steps on write-ahead logs since the last call, in order: 'w' write, 's' fsync.
  [[nodiscard]] std::string take_log_steps() {
    const std::lock_guard lock(mutex_);
    return std::exchange(steps_, {});
  }

 private:
  struct File {
    sqlite3_file base;
    FaultyDisk* disk;
    bool is_main;
    bool is_log;
    sqlite3_file* real() { return reinterpret_cast<sqlite3_file*>(this + 1); }
  };

  static FaultyDisk& of(sqlite3_vfs* vfs) { return *static_cast<FaultyDisk*>(vfs->pAppData); }
  static File& as_file(sqlite3_file* file) { return *reinterpret_cast<File*>(file); }

  bool next_fails(File& file, char kind) {
    const std::lock_guard lock(mutex_);
    if (file.is_log) steps_ += kind;
    if (fault_.only_main && !file.is_main) return false;
    if (left_ > 1) {
      --left_;
      return false;
    }
    if (left_ == 1) fired_ = true;
    return left_ == 1;
  }

  static int open(sqlite3_vfs* vfs, const char* name, sqlite3_file* out, int flags,
                  int* out_flags) {
    FaultyDisk& disk = of(vfs);
    File& file = as_file(out);
    file.base.pMethods = nullptr;
    file.disk = &disk;
    file.is_main = (flags & SQLITE_OPEN_MAIN_DB) != 0;
    file.is_log = (flags & SQLITE_OPEN_WAL) != 0;
    const int rc = disk.real_->xOpen(disk.real_, name, file.real(), flags, out_flags);
    if (file.real()->pMethods != nullptr) file.base.pMethods = methods();
    return rc;
  }

  static const sqlite3_io_methods* methods() {
    static const sqlite3_io_methods table = make_methods();
    return &table;
  }

  static sqlite3_io_methods make_methods() {
    sqlite3_io_methods m{};
    m.iVersion = 2;
    m.xClose = [](sqlite3_file* f) {
      sqlite3_file* real = as_file(f).real();
      return real->pMethods->xClose(real);
    };
    m.xRead = [](sqlite3_file* f, void* to, int size, sqlite3_int64 at) {
      sqlite3_file* real = as_file(f).real();
      return real->pMethods->xRead(real, to, size, at);
    };
    m.xWrite = [](sqlite3_file* f, const void* from, int size, sqlite3_int64 at) {
      File& file = as_file(f);
      sqlite3_file* real = file.real();
      const bool fails = file.disk->next_fails(file, 'w');
      if (!fails) return real->pMethods->xWrite(real, from, size, at);
      real->pMethods->xWrite(real, from, size / 2, at);
      const std::lock_guard lock(file.disk->mutex_);
      return file.disk->fault_.write;
    };
    m.xTruncate = [](sqlite3_file* f, sqlite3_int64 size) {
      File& file = as_file(f);
      sqlite3_file* real = file.real();
      if (file.disk->next_fails(file, 't')) return SQLITE_IOERR_TRUNCATE;
      return real->pMethods->xTruncate(real, size);
    };
    m.xSync = [](sqlite3_file* f, int flags) {
      File& file = as_file(f);
      sqlite3_file* real = file.real();
      const bool fails = file.disk->next_fails(file, 's');
      const int rc = real->pMethods->xSync(real, flags);
      const std::lock_guard lock(file.disk->mutex_);
      return fails ? file.disk->fault_.sync : rc;
    };
    m.xFileSize = [](sqlite3_file* f, sqlite3_int64* size) {
      sqlite3_file* real = as_file(f).real();
      return real->pMethods->xFileSize(real, size);
    };
    m.xLock = [](sqlite3_file* f, int level) {
      sqlite3_file* real = as_file(f).real();
      return real->pMethods->xLock(real, level);
    };
    m.xUnlock = [](sqlite3_file* f, int level) {
      sqlite3_file* real = as_file(f).real();
      return real->pMethods->xUnlock(real, level);
    };
    m.xCheckReservedLock = [](sqlite3_file* f, int* out) {
      sqlite3_file* real = as_file(f).real();
      return real->pMethods->xCheckReservedLock(real, out);
    };
    m.xFileControl = [](sqlite3_file* f, int op, void* arg) {
      sqlite3_file* real = as_file(f).real();
      if (op == SQLITE_FCNTL_LAST_ERRNO) {
        FaultyDisk& disk = *as_file(f).disk;
        const std::lock_guard lock(disk.mutex_);
        if (disk.fired_) {
          *static_cast<int*>(arg) = disk.fault_.os_error;
          return SQLITE_OK;
        }
      }
      return real->pMethods->xFileControl(real, op, arg);
    };
    m.xSectorSize = [](sqlite3_file* f) {
      sqlite3_file* real = as_file(f).real();
      return real->pMethods->xSectorSize(real);
    };
    m.xDeviceCharacteristics = [](sqlite3_file* f) {
      sqlite3_file* real = as_file(f).real();
      return real->pMethods->xDeviceCharacteristics(real);
    };
    m.xShmMap = [](sqlite3_file* f, int page, int size, int extend, void volatile** out) {
      sqlite3_file* real = as_file(f).real();
      return real->pMethods->xShmMap(real, page, size, extend, out);
    };
    m.xShmLock = [](sqlite3_file* f, int offset, int n, int flags) {
      sqlite3_file* real = as_file(f).real();
      return real->pMethods->xShmLock(real, offset, n, flags);
    };
    m.xShmBarrier = [](sqlite3_file* f) {
      sqlite3_file* real = as_file(f).real();
      real->pMethods->xShmBarrier(real);
    };
    m.xShmUnmap = [](sqlite3_file* f, int remove) {
      sqlite3_file* real = as_file(f).real();
      return real->pMethods->xShmUnmap(real, remove);
    };
    return m;
  }

  sqlite3_vfs* real_ = nullptr;
  sqlite3_vfs vfs_{};
  mutable std::mutex mutex_;
  int left_ = 0;        // Guarded by mutex_. 0: nothing fails; 1: the next step does.
  bool fired_ = false;  // Guarded by mutex_.
  Fault fault_;         // Guarded by mutex_.
  std::string steps_;   // Guarded by mutex_.
};

}  // namespace doorbuster::db::testing
