// The files of tenants' pages (proto/shm/tenant_page_abi.h), as tallyd removes them.
#pragma once

#include <string>

namespace tally::server {

// Removes the page unless an executor has it, or its tenant has used more of a GPU's time than is paid for by now.
// True: it is gone, and so it is if it never was there. False: it may be asked again later. Never waits.
//
// Who has a page keeps it, however few sessions tallyd knows of: with a second one under its name the tenant would have
// its quota twice. Who opens it at this moment finds that it was removed, and makes another (TenantPage::Open).
bool RemoveTenantPage(const std::string& path);

}  // namespace tally::server
